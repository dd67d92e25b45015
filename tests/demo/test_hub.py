"""The loopback hub, asked by raw HTTP and by the unmodified client libraries in a process of their own."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
from http.client import HTTPConnection, HTTPResponse, IncompleteRead
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

import pytest

from obliq_eval.demo.hub import Fault, LoopbackHub, Repo
from obliq_eval.demo.toy import MIRROR_ID, OFFICIAL_ID, OFFICIAL_REVISION, mirror_repo, official_repo

if TYPE_CHECKING:
    from pathlib import Path

OLD, NEW = "a" * 40, "b" * 40
DIGITS = b"0123456789"
WRITING = f"/datasets/{OFFICIAL_ID}/resolve/{OFFICIAL_REVISION}/analogues/writing"


def folder(root: Path, files: dict[str, bytes]) -> Path:
    """Write files under a folder and return it."""
    for name, content in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(content)
    return root


def digits(tmp_path: Path) -> Repo:
    """Return a model repository with one file of ten bytes."""
    return Repo("model", "org/digits", folder(tmp_path / "digits", {"d.bin": DIGITS}), NEW)


def ask(hub: LoopbackHub, path: str, method: str = "GET", **headers: str) -> tuple[int, HTTPResponse, bytes]:
    """Send one request and return the status, the response (for its headers) and the body."""
    connection = HTTPConnection(urlsplit(hub.url).netloc, timeout=20)
    connection.request(method, path, headers=headers)
    response = connection.getresponse()
    body = response.read()
    connection.close()
    return response.status, response, body


def client(url: str, home: Path, code: str, **env: str) -> Any:
    """Run code against a hub in a new interpreter and return the JSON value of its last line."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("HF_", "OBLIQ_"))}
    own = {
        "HF_ENDPOINT": url,
        "HF_HOME": str(home),
        "HF_HUB_DISABLE_PROGRESS_BARS": "1",
        "NO_PROXY": "127.0.0.1",
        "OBLIQ_MTEB_HOOK": "0",
    }
    done = subprocess.run(
        [sys.executable, "-c", code], env={**inherited, **own, **env}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def file_requests(hub: LoopbackHub, method: str = "GET") -> list[str]:
    """Return the paths of the requests for files."""
    return [path for made, path in hub.requests if made == method and "/resolve/" in path]


@pytest.mark.parametrize(
    ("header", "status", "content_range", "body"),
    [
        ("bytes=0-3", 206, "bytes 0-3/10", b"0123"),
        ("bytes=7-", 206, "bytes 7-9/10", b"789"),
        ("bytes=-2", 206, "bytes 8-9/10", b"89"),
        ("bytes=-99", 206, "bytes 0-9/10", DIGITS),
        ("bytes=5-99", 206, "bytes 5-9/10", b"56789"),
        ("bytes=9-9", 206, "bytes 9-9/10", b"9"),
        ("bytes=10-", 416, "bytes */10", b""),
        ("bytes=-0", 416, "bytes */10", b""),
        ("bytes=4-2", 200, None, DIGITS),
        ("bytes=0-1,4-5", 200, None, DIGITS),
        ("bytes=-", 200, None, DIGITS),
        ("lines=1-2", 200, None, DIGITS),
    ],
)
def test_ranges(tmp_path: Path, header: str, status: int, content_range: str | None, body: bytes) -> None:
    with LoopbackHub([digits(tmp_path)]) as hub:
        got, response, content = ask(hub, "/org/digits/resolve/main/d.bin", Range=header)
    assert (got, response.getheader("Content-Range"), content) == (status, content_range, body)
    assert response.getheader("Content-Length") == str(len(body))


def test_head_of_a_file_describes_the_whole_file(tmp_path: Path) -> None:
    with LoopbackHub([digits(tmp_path)]) as hub:
        status, response, body = ask(hub, "/org/digits/resolve/main/d.bin", "HEAD", Range="bytes=0-3")
    # printf 0123456789 | sha256sum
    etag = '"84d89877f0d4041efb6bf91a16f0248f2fd573e6af05c19f96bedb9f882f7882"'
    assert (status, body, response.getheader("Content-Length")) == (200, b"", "10")
    assert response.getheader("ETag") == etag
    assert response.getheader("X-Repo-Commit") == NEW
    assert response.getheader("Accept-Ranges") == "bytes"


def test_a_changed_file_has_a_new_etag(tmp_path: Path) -> None:
    with LoopbackHub([digits(tmp_path)]) as hub:
        before = ask(hub, "/org/digits/resolve/main/d.bin", "HEAD")[1].getheader("ETag")
        (tmp_path / "digits" / "d.bin").write_bytes(b"0123456789!")
        after = ask(hub, "/org/digits/resolve/main/d.bin", "HEAD")[1].getheader("ETag")
    assert before != after


@pytest.mark.parametrize("name", ["a+b/plain.txt", "a b.txt", "été/ß.txt", "100%.txt", "what?#.txt", "%2B.txt"])
def test_paths_are_percent_decoded_once_and_plus_stays(tmp_path: Path, name: str) -> None:
    repo = Repo("dataset", "org/names", folder(tmp_path, {name: b"yes", "a b/plain.txt": b"no"}), NEW)
    with LoopbackHub([repo]) as hub:
        status, _, body = ask(hub, f"/datasets/org/names/resolve/main/{quote(name)}")
        assert (status, body) == (200, b"yes")
        assert hub.requests == [("GET", f"/datasets/org/names/resolve/main/{name}")]


@pytest.mark.parametrize(
    ("path", "code", "commit"),
    [
        ("/datasets/org/digits/resolve/main/d.bin", "RepoNotFound", None),  # it is a model
        ("/api/models/org/other", "RepoNotFound", None),
        ("/api/models/org/digits/revision/" + OLD, "RevisionNotFound", None),
        ("/org/digits/resolve/dev/d.bin", "RevisionNotFound", None),
        ("/org/digits/resolve/main/e.bin", "EntryNotFound", NEW),
        ("/org/digits/resolve/main/../secret", "EntryNotFound", NEW),
        ("/org/digits/resolve/main/%2e%2e/secret", "EntryNotFound", NEW),
        ("/api/models/org/digits/tree/main/d.bin", "EntryNotFound", NEW),
        ("/api/agent-harnesses", None, None),
        ("/api/models/org/digits/commits/main", None, None),
    ],
)
def test_what_is_missing_is_named(tmp_path: Path, path: str, code: str | None, commit: str | None) -> None:
    folder(tmp_path, {"secret": b"outside of the repository"})
    with LoopbackHub([digits(tmp_path)]) as hub:
        for method in ("GET", "HEAD"):
            status, response, _ = ask(hub, path, method)
            assert (status, response.getheader("X-Error-Code")) == (404, code)
            assert response.getheader("X-Repo-Commit") == commit


def test_listing_of_one_folder_and_of_all(tmp_path: Path) -> None:
    files = {"top.txt": b"", "a+b/one.txt": b"1", "a+b/deep/two.txt": b"22", "a+bc/three.txt": b"333"}
    with LoopbackHub([Repo("dataset", "org/tree", folder(tmp_path, files), NEW)]) as hub:

        def listed(query: str) -> set[tuple[str, str, int]]:
            _, _, body = ask(hub, f"/api/datasets/org/tree/tree/main{query}")
            return {(entry["type"], entry["path"], entry["size"]) for entry in json.loads(body)}

        top = {("directory", "a+b", 0), ("directory", "a+bc", 0), ("file", "top.txt", 0)}
        inner = {("directory", "a+b/deep", 0), ("file", "a+b/one.txt", 1)}
        two, three = ("file", "a+b/deep/two.txt", 2), ("file", "a+bc/three.txt", 3)
        assert listed("") == top
        assert listed("?recursive=True&expand=False") == top | inner | {two, three}
        assert listed("/a%2Bb") == inner
        assert listed("/a+b?recursive=true") == inner | {two}


def test_main_is_the_last_revision_and_an_older_one_stays(tmp_path: Path) -> None:
    repos = [
        Repo("model", "org/m", folder(tmp_path / "old", {"f": b"old"}), OLD),
        Repo("model", "org/m", folder(tmp_path / "new", {"f": b"new"}), NEW),
    ]
    with LoopbackHub(repos) as hub:
        assert ask(hub, "/org/m/resolve/main/f")[2] == b"new"
        assert ask(hub, f"/org/m/resolve/{OLD}/f")[2] == b"old"
        assert json.loads(ask(hub, "/api/models/org/m")[2])["sha"] == NEW


def test_bad_revision_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="40 hex digits, not 'main'"):
        Repo("model", "org/m", tmp_path, "main")


def test_after_the_exit_nothing_answers_and_the_port_is_free(tmp_path: Path) -> None:
    with LoopbackHub([digits(tmp_path)]) as hub:
        netloc = urlsplit(hub.url).netloc
        ask(hub, "/api/models/org/digits")
    assert netloc.startswith("127.0.0.1:")
    with pytest.raises(ConnectionRefusedError):
        HTTPConnection(netloc, timeout=20).request("GET", "/")
    with pytest.raises(RuntimeError, match="not running"):
        _ = hub.url
    with LoopbackHub([digits(tmp_path)], port=int(netloc.rpartition(":")[2])) as again:
        assert ask(again, "/api/models/org/digits")[0] == 200


def test_serve_answers_until_interrupted(tmp_path: Path) -> None:
    code = f"""
from pathlib import Path
from obliq_eval.demo.hub import Repo, serve
serve([Repo("model", "org/m", Path({str(tmp_path)!r}), {NEW!r})], 0, lambda url: print(url, flush=True))
"""
    folder(tmp_path, {"f": b"content"})
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        netloc = urlsplit(server.stdout.readline().strip()).netloc
        connection = HTTPConnection(netloc, timeout=20)
        connection.request("GET", "/org/m/resolve/main/f")
        assert connection.getresponse().read() == b"content"
        server.send_signal(signal.SIGINT)
        assert server.wait(timeout=20) == 0


def test_faults_hit_what_they_name_until_they_are_spent(tmp_path: Path) -> None:
    path = "/org/digits/resolve/main/d.bin"
    with LoopbackHub([digits(tmp_path)], faults=[Fault("*.bin", times=2, status=503)]) as hub:
        assert ask(hub, path, "HEAD")[0] == 200
        assert ask(hub, "/api/models/org/digits")[0] == 200
        assert [ask(hub, path)[0] for _ in range(3)] == [503, 503, 200]
        hub.inject(Fault("/api/*", status=429))
        assert [ask(hub, "/api/models/org/digits")[0] for _ in range(3)] == [429, 429, 429]
        hub.inject(Fault("*.bin", times=1, cut_after=4))
        with pytest.raises(IncompleteRead) as cut:
            ask(hub, path)
        assert (cut.value.partial, cut.value.expected) == (b"0123", 6)
        hub.inject(Fault("*.bin", times=1, length_error=-3))
        assert ask(hub, path)[2] == b"0123456"
        hub.inject(Fault("*.bin", times=1, length_error=5))
        with pytest.raises(IncompleteRead):
            ask(hub, path)
        assert ask(hub, path)[2] == DIGITS


SNAPSHOT = f"""
import json, pathlib
from huggingface_hub import snapshot_download
root = pathlib.Path(snapshot_download("{OFFICIAL_ID}", repo_type="dataset", revision="{OFFICIAL_REVISION}",
                                      allow_patterns="analogues/writing/*"))
print(json.dumps({{p.relative_to(root).as_posix(): p.read_text() for p in sorted(root.rglob("*")) if p.is_file()}}))
"""


def test_snapshot_of_one_subset_is_reused_online_and_offline(tmp_path: Path) -> None:
    repo = official_repo(tmp_path / "official")
    names = [
        "corpus/corpus.jsonl",
        "queries+qrels/per_query_excluded_ids.json",
        "queries+qrels/qrels.tsv",
        "queries+qrels/queries.jsonl",
    ]
    served = {f"analogues/writing/{name}": (repo.folder / "analogues/writing" / name).read_text() for name in names}
    with LoopbackHub([repo]) as hub:
        url = hub.url
        assert client(url, tmp_path / "home", SNAPSHOT) == served
        assert sorted(file_requests(hub)) == [f"{WRITING}/{name}" for name in names]
        assert client(url, tmp_path / "home", SNAPSHOT) == served
        assert len(file_requests(hub)) == len(names)
    made = len(hub.requests)
    assert client(url, tmp_path / "home", SNAPSHOT, HF_HUB_OFFLINE="1") == served
    assert len(hub.requests) == made


def test_client_downloads_a_plus_path_and_asks_about_paths(tmp_path: Path) -> None:
    code = f"""
import json
from huggingface_hub import HfApi, hf_hub_download
name = "analogues/math/queries+qrels/qrels_pool.tsv"
path = hf_hub_download("{OFFICIAL_ID}", name, repo_type="dataset")
infos = HfApi().get_paths_info("{OFFICIAL_ID}", [name, "analogues", "nowhere"], repo_type="dataset")
info = HfApi().dataset_info("{OFFICIAL_ID}")
with open(path) as file:
    print(json.dumps([file.read(), [(i.path, getattr(i, "size", None)) for i in infos], info.sha, len(info.siblings)]))
"""
    repo = official_repo(tmp_path / "official")
    pool = (repo.folder / "analogues/math/queries+qrels/qrels_pool.tsv").read_text(encoding="utf-8")
    with LoopbackHub([repo]) as hub:
        content, infos, sha, siblings = client(hub.url, tmp_path / "home", code)
        assert ("POST", f"/api/datasets/{OFFICIAL_ID}/paths-info/main") in hub.requests
    assert content == pool
    assert infos == [["analogues/math/queries+qrels/qrels_pool.tsv", len(pool.encode())], ["analogues", None]]
    # Five corpora, query and qrels files, three pools, two exclusion lists, the card.
    assert (sha, siblings) == (OFFICIAL_REVISION, 5 * 3 + 3 + 2 + 1)


def test_client_resumes_a_cut_download(tmp_path: Path) -> None:
    """The second connection ends after the 20 bytes that are missing: enough only for one who resumes.

    The client keeps whole chunks of 10 MiB, so the first connection leaves it with exactly one.
    """
    code = """
import hashlib, json, pathlib
from huggingface_hub import hf_hub_download
print(json.dumps(hashlib.sha256(pathlib.Path(hf_hub_download("org/big", "big.bin")).read_bytes()).hexdigest()))
"""
    chunk = 10 * 1024 * 1024
    content = bytes(range(256)) * (chunk // 256) + b"the last twenty byte"
    repo = Repo("model", "org/big", folder(tmp_path / "big", {"big.bin": content}), NEW)
    faults = [Fault("*/big.bin", times=1, cut_after=chunk + 10), Fault("*/big.bin", times=1, cut_after=20)]
    with LoopbackHub([repo], faults=faults) as hub:
        assert client(hub.url, tmp_path / "home", code) == hashlib.sha256(content).hexdigest()
        assert len(file_requests(hub)) == 2


def test_client_waits_when_told_and_refuses_a_file_of_the_wrong_length(tmp_path: Path) -> None:
    code = """
import json
from huggingface_hub import hf_hub_download, try_to_load_from_cache
hf_hub_download("org/digits", "d.bin")
try:
    hf_hub_download("org/digits", "e.bin")
except OSError as error:
    print(json.dumps([str(error), try_to_load_from_cache("org/digits", "e.bin")]))
"""
    repo = digits(tmp_path)
    folder(repo.folder, {"e.bin": b"another ten"})
    faults = [Fault("*/d.bin", times=1, status=429), Fault("*/e.bin", length_error=-1)]
    with LoopbackHub([repo], faults=faults) as hub:
        message, cached = client(hub.url, tmp_path / "home", code)
        assert [path.rpartition("/")[2] for path in file_requests(hub)] == ["d.bin", "d.bin", "e.bin"]
    assert "should be of size 11 but has size 10" in message
    assert cached is None


def test_client_raises_the_class_that_fits(tmp_path: Path) -> None:
    code = f"""
import json
from huggingface_hub import hf_hub_download, snapshot_download
calls = {{
    "repo": lambda: hf_hub_download("org/none", "f"),
    "repo, snapshot": lambda: snapshot_download("org/none", repo_type="dataset"),
    "revision": lambda: hf_hub_download("org/digits", "d.bin", revision="dev"),
    "revision, snapshot": lambda: snapshot_download("org/digits", revision="{OLD}"),
    "entry": lambda: hf_hub_download("org/digits", "e.bin"),
    "gated": lambda: hf_hub_download("org/gated", "f", repo_type="dataset"),
    "gated, snapshot": lambda: snapshot_download("org/gated", repo_type="dataset", revision="{OLD}"),
}}
raised = {{}}
for name, call in calls.items():
    try:
        call()
    except Exception as error:
        raised[name] = [kind.__name__ for kind in type(error).__mro__]
print(json.dumps(raised))
"""
    gated = Repo("dataset", "org/gated", folder(tmp_path / "gated", {"f": b"secret"}), OLD, gated=True)
    with LoopbackHub([digits(tmp_path), gated]) as hub:
        raised = client(hub.url, tmp_path / "home", code)
        assert ask(hub, "/datasets/org/gated/resolve/main/f")[0] == 401
        assert json.loads(ask(hub, "/api/datasets/org/gated")[2])["gated"] == "manual"
    assert {name: kinds[0] for name, kinds in raised.items()} == {
        "repo": "RepositoryNotFoundError",
        "repo, snapshot": "RepositoryNotFoundError",
        "revision": "RevisionNotFoundError",
        "revision, snapshot": "RevisionNotFoundError",
        "entry": "RemoteEntryNotFoundError",
        "gated": "GatedRepoError",
        "gated, snapshot": "GatedRepoError",
    }
    assert "EntryNotFoundError" in raised["entry"]


def test_mteb_reads_its_own_tasks_from_the_mirror(tmp_path: Path) -> None:
    code = """
import json, mteb
found = {}
for name in ("Writing", "Twitter"):
    task = mteb.get_task(f"OBLIQBench{name}Retrieval")
    task.load_data()
    data = task.dataset[name.lower()]["test"]
    found[name] = [len(data["corpus"]), list(data["queries"]["id"]), data["relevant_docs"], data["top_ranked"]]
print(json.dumps(found))
"""
    with LoopbackHub([mirror_repo(tmp_path / "mirror")]) as hub:
        found = client(hub.url, tmp_path / "home", code)
        assert all(MIRROR_ID in path for _, path in hub.requests if "/resolve/" in path)
    size, queries, qrels, ranked = found["Writing"]
    # 7 authors x 6 snippets, and 1 + 2 + 3 + 1 + 2 + 3 + 1 of the queries' own posts.
    assert (size, queries) == (42 + 13, [f"post {n}/snippet 0" for n in range(7)])
    assert {query: len(judged) for query, judged in qrels.items()} == dict.fromkeys(queries, 6)
    assert [size - len(ranked[query]) for query in queries] == [1, 2, 3, 1, 2, 3, 1]
    assert not {"post 1/snippet 1", "post 1/snippet 2"} & set(ranked["post 1/snippet 0"])
    _, queries, qrels, ranked = found["Twitter"]
    assert queries == ["0", "01", "2", "03", "4", "05"]  # mteb leaves out the query without judgments
    assert qrels["0"]["404404"] == 1  # pooled: four gold, the missing one, two more
    assert len(qrels["0"]) == 7
    assert ranked is None
