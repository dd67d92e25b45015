"""Every source of a data set gives the same record; what cannot be had is told in one sentence, and leaves nothing.

The unmodified hub client runs in processes of their own, for it reads `HF_ENDPOINT` when it is imported.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from obliq_eval.data.export import export
from obliq_eval.data.mirror import exclusions_from_candidates
from obliq_eval.data.official import MIRROR, MIRROR_REVISION, OFFICIAL, REPOSITORY, REVISION
from obliq_eval.data.sources import MINI, MINI_FOLDER, load, open_source
from obliq_eval.demo.hub import Fault, LoopbackHub
from obliq_eval.demo.toy import mirror_repo, official_repo, toy_task, write_official
from obliq_eval.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from obliq_eval.demo.hub import Repo

POOLED = ("OBLIQ-Twitter", "OBLIQ-WildChat", "OBLIQ-Math")
EXCLUDING = ("OBLIQ-Math", "OBLIQ-Writing")

PROCESS = """
import json, sys, time
from obliq_eval.data.sources import open_source
from obliq_eval.errors import UserError

time.sleep = lambda seconds: None  # the client waits between its tries
exec(sys.argv[1])
found = {}
for reference in sys.argv[2:]:
    try:
        loaded = open_source(reference)
    except UserError as error:
        found[reference] = {"error": str(error)}
        continue
    data = loaded.dataset
    found[reference] = {
        "name": data.name,
        "revision": data.revision,
        "source": data.corpus.source,
        "documents": list(zip(data.corpus.documents["id"], data.corpus.documents["text"])),
        "queries": list(data.queries.items()),
        "texts": list(loaded.query_texts.items()),
        "gold": list(data.gold.pairs()),
        "pooled": data.pooled and list(data.pooled.pairs()),
        "exclusions": {query: sorted(ids) for query, ids in data.exclusions.items()},
        "groups": dict(data.groups),
        "facts": vars(loaded.facts),
    }
print(json.dumps(found))
"""


def opened(url: str, home: Path, *references: str, before: str = "", **env: str) -> dict[str, dict[str, Any]]:
    """Open sources in a new process and return what they hold, or the sentence that tells why not."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("HF_", "OBLIQ_"))}
    own = {
        "HF_ENDPOINT": url,
        "HF_HOME": str(home / "hf"),
        "HF_HUB_DISABLE_PROGRESS_BARS": "1",
        "NO_PROXY": "127.0.0.1",
        "OBLIQ_HOME": str(home / "obliq"),
        "OBLIQ_MTEB_HOOK": "0",
    }
    done = subprocess.run(
        [sys.executable, "-c", PROCESS, before, *references],
        env={**inherited, **own, **env},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, dict[str, Any]] = json.loads(done.stdout.splitlines()[-1])
    return found


def errors(url: str, home: Path, *references: str, before: str = "", **env: str) -> list[str]:
    """Return the sentences that tell why sources cannot be opened; each must be one."""
    found = [one["error"] for one in opened(url, home, *references, before=before, **env).values()]
    assert all("\n" not in sentence for sentence in found)
    return found


def content(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return a record without what differs by source."""
    return {key: value for key, value in record.items() if key not in ("name", "revision", "source")}


def whole(home: Path, name: str) -> list[Path]:
    """Return the files of this name that a reader of the hub's cache or of ours would find."""
    return [path for path in home.rglob(name) if not path.name.endswith(".incomplete")]


@pytest.fixture(scope="module")
def repos(tmp_path_factory: pytest.TempPathFactory) -> list[Repo]:
    root = tmp_path_factory.mktemp("repos")
    return [official_repo(root / "official"), mirror_repo(root / "mirror")]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def folders(repos: list[Repo], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write each task as a folder in the official layout and in BEIR's, and return where."""
    root = tmp_path_factory.mktemp("folders")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OBLIQ_HOME", str(root / "home"))
        for name, task in OFFICIAL.items():
            write_official(root / "official" / name, task.folder)
            export(open_source(root / "official" / name), "beir", root / "beir" / name)
    return root


@pytest.fixture(scope="module")
def everything(repos: list[Repo], folders: Path, home: Path) -> dict[str, dict[str, Any]]:
    """Open every task from every source."""
    references = [*OFFICIAL, *(f"mirror:{name}" for name in OFFICIAL)]
    references += [str(folders / kind / name) for kind in ("official", "beir") for name in OFFICIAL]
    with LoopbackHub(repos) as hub:
        return opened(hub.url, home, *references)


@pytest.mark.parametrize("name", OFFICIAL)
def test_the_hub_gives_what_was_written(name: str, everything: dict[str, dict[str, Any]]) -> None:
    toy, record = toy_task(OFFICIAL[name].folder), everything[name]
    relevant = {query for query, _, grade in (*toy.gold, *(toy.pooled or ())) if grade > 0}
    assert [record["name"], record["revision"], record["source"]] == [name, REVISION, "hub"]
    assert record["documents"] == [list(row) for row in toy.corpus]
    assert record["texts"] == [list(row) for row in toy.queries]
    assert record["queries"] == [list(row) for row in toy.queries if row[0] in relevant]
    # a query's judgments come together, wherever they stand in the file
    assert sorted(record["gold"]) == sorted(map(list, toy.gold))
    assert (record["pooled"] and sorted(record["pooled"])) == (toy.pooled and sorted(map(list, toy.pooled)))
    assert (record["pooled"] is not None) == (name in POOLED)
    assert record["exclusions"] == {query: sorted(ids) for query, ids in (toy.excluded or {}).items()}
    assert bool(record["exclusions"]) == (name in EXCLUDING)


@pytest.mark.parametrize("kind", ["official", "beir"])
@pytest.mark.parametrize("name", OFFICIAL)
def test_folders_give_the_same(name: str, kind: str, everything: dict[str, dict[str, Any]], folders: Path) -> None:
    record = everything[str(folders / kind / name)]
    assert content(record) == content(everything[name])
    assert [record["name"], record["source"]] == [name, "folder" if kind == "official" else "beir"]
    assert len(record["revision"]) == 40
    assert record["revision"] != REVISION


@pytest.mark.parametrize("name", OFFICIAL)
def test_the_mirror_gives_the_same_with_one_kind_of_judgments(name: str, everything: dict[str, Any]) -> None:
    record, official = everything[f"mirror:{name}"], everything[name]
    assert [record["name"], record["revision"], record["source"]] == [name, MIRROR_REVISION, "mirror"]
    judgments = {"gold": [], "pooled": official["pooled"]} if name in POOLED else {"gold": official["gold"]}
    assert content(record) == content(official) | judgments


def test_offline_with_a_full_cache_asks_for_nothing(
    everything: dict[str, dict[str, Any]], repos: list[Repo], home: Path
) -> None:
    references = [*OFFICIAL, *(f"mirror:{name}" for name in OFFICIAL)]
    shutil.rmtree(home / "obliq" / "corpora")  # so that the hub's files are read again, not only what was converted
    with LoopbackHub(repos) as hub:
        again = opened(hub.url, home, *references, HF_HUB_OFFLINE="1")
        assert hub.requests == []
    assert again == {reference: everything[reference] for reference in references}


def test_only_the_files_of_the_task_are_asked_for(repos: list[Repo], tmp_path: Path) -> None:
    with LoopbackHub(repos) as hub:
        opened(hub.url, tmp_path, "OBLIQ-Math")
        asked = hub.requests
        opened(hub.url, tmp_path, "OBLIQ-Math")
        again = hub.requests[len(asked) :]
    prefix = f"/datasets/{REPOSITORY}/resolve/{REVISION}/analogues/math/"
    assert [path for method, path in asked if method == "GET" and "/resolve/" in path] == [
        prefix + "corpus/corpus.jsonl",
        prefix + "queries+qrels/queries.jsonl",
        prefix + "queries+qrels/qrels.tsv",
        prefix + "queries+qrels/qrels_pool.tsv",
        prefix + "queries+qrels/per_query_excluded_ids.json",
    ]
    assert all(path.startswith(prefix) for _, path in asked if REPOSITORY in path)
    assert [path for _, path in again if REPOSITORY in path] == []  # the commit pins what the cache holds


def test_of_the_mirror_only_the_tables_of_the_task_are_read(repos: list[Repo], tmp_path: Path) -> None:
    with LoopbackHub(repos) as hub:
        opened(hub.url, tmp_path, "mirror:OBLIQ-Congress")
        files = [path for method, path in hub.requests if method == "GET" and "/resolve/" in path]
    prefix = f"/datasets/{MIRROR}/resolve/{MIRROR_REVISION}/"
    tables = [f"{prefix}congress-{part}/test-00000-of-00001.parquet" for part in ("corpus", "queries", "qrels")]
    assert sorted(files) == sorted([f"{prefix}README.md", *tables])


BOTH = ("OBLIQ-Writing", "mirror:OBLIQ-Writing")


def test_what_the_hub_refuses_is_one_sentence_each(repos: list[Repo], tmp_path: Path) -> None:
    served: dict[str, Sequence[Repo]] = {
        "is gated: accept its terms on the hub, then set HF_TOKEN": [replace(repo, gated=True) for repo in repos],
        "is not on the hub, or is private": [],
        "any more": [replace(repo, revision="a" * 40) for repo in repos],
    }
    for sentence, some in served.items():
        with LoopbackHub(some) as hub:
            told = errors(hub.url, tmp_path, *BOTH)
        assert [name in one for name, one in zip((REPOSITORY, MIRROR), told, strict=True)] == [True, True]
        assert [sentence in one for one in told] == [True, True], told
    assert not whole(tmp_path, "corpus.*")


def test_a_hub_that_cannot_be_reached(repos: list[Repo], tmp_path: Path) -> None:
    with LoopbackHub(repos) as hub:
        url = hub.url
    for offline in ("0", "1"):
        told = errors(url, tmp_path, *BOTH, HF_HUB_OFFLINE=offline)
        assert ["is not in the local cache and the hub cannot be reached" in one for one in told] == [True, True]
    assert not whole(tmp_path, "corpus.*")


@pytest.mark.parametrize(
    "endpoint",
    ["", "garbage", "http://", "ftp://host", "http://127.0.0.1:99999", "http://127.0.0.1:0", "http://me:secret@a b:1",
     "http://[::1", f"http://{'a' * 80}.x", "http://\u00e9\u2028x:1"],
)  # fmt: skip
def test_an_address_that_is_none_is_named_and_not_repeated(endpoint: str, tmp_path: Path) -> None:
    told = errors(endpoint, tmp_path, *BOTH)
    assert [sentence.startswith("HF_ENDPOINT is not the address of a hub") for sentence in told] == [True, True], told
    assert not any("secret" in sentence for sentence in told)


def test_a_token_that_is_none_is_named_and_not_repeated(repos: list[Repo], tmp_path: Path) -> None:
    own = {"HF_TOKEN": "hf_secr\u00e9t"}
    with LoopbackHub(repos) as hub:
        told = errors(hub.url, tmp_path, *BOTH, **own)
    assert [sentence.startswith("the hub's token holds a character") for sentence in told] == [True, True], told
    assert not any("secr" in sentence for sentence in told)


def test_other_settings_that_the_client_cannot_read_are_one_sentence_each(folders: Path, tmp_path: Path) -> None:
    url = "http://192.0.2.1:9"
    (told,) = errors(url, tmp_path, "OBLIQ-Writing", http_proxy="foo://host:1")
    assert "could not be fetched" in told
    assert "proxy" in told
    folder = str(folders / "official" / "OBLIQ-Writing")  # its reader imports a library that reads the settings
    for told in errors(url, tmp_path, "OBLIQ-Writing", folder, HF_HUB_ETAG_TIMEOUT="soon"):
        assert told.startswith("HF_HUB_ETAG_TIMEOUT is not a whole number of seconds")


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (Fault("*/corpus.jsonl", cut_after=100), "received 100 bytes"),
        (Fault("*/corpus.jsonl", length_error=7), "could not be fetched"),
        (Fault("*/corpus.jsonl", length_error=-7), "Consistency check failed"),  # a plain OSError of the client
        (Fault("*/corpus.jsonl", status=503), "503"),
        (Fault("*/corpus.jsonl", status=503, method="HEAD"), "could not be fetched"),
        (Fault("*/qrels.tsv", cut_after=3), "could not be fetched"),
    ],
)
def test_a_broken_download_is_one_sentence(fault: Fault, reason: str, repos: list[Repo], tmp_path: Path) -> None:
    with LoopbackHub(repos, faults=[fault]) as hub:
        (told,) = errors(hub.url, tmp_path, "OBLIQ-Writing")
    assert f"{REPOSITORY} at commit {REVISION[:12]} could not be fetched" in told
    assert reason in told
    assert "try again" in told
    assert not whole(tmp_path, fault.pattern.removeprefix("*/"))
    assert not whole(tmp_path, "corpus.arrow")


def test_after_a_broken_download_the_finished_files_are_kept(
    repos: list[Repo], everything: dict[str, dict[str, Any]], tmp_path: Path
) -> None:
    with LoopbackHub(repos, faults=[Fault("*/qrels.tsv", cut_after=3)]) as hub:
        errors(hub.url, tmp_path, "OBLIQ-Writing")
    with LoopbackHub(repos) as hub:
        again = opened(hub.url, tmp_path, "OBLIQ-Writing")
        files = [path.rpartition("/")[2] for method, path in hub.requests if method == "GET" and "/resolve/" in path]
    assert again == {"OBLIQ-Writing": everything["OBLIQ-Writing"]}
    assert files == ["qrels.tsv", "per_query_excluded_ids.json"]


FULL = """
import errno, os, huggingface_hub.file_download as client
def full(*_, **__):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
client.http_get = full
"""
LIMITED = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (1_000, 1_000))"


@pytest.mark.parametrize(("before", "reason"), [(FULL, "the disk is full"), (LIMITED, "File too large")])
def test_a_disk_that_takes_no_more(before: str, reason: str, repos: list[Repo], tmp_path: Path) -> None:
    """The client meets ENOSPC; and a limit on file sizes, for which the kernel itself refuses the write."""
    with LoopbackHub(repos) as hub:
        (told,) = errors(hub.url, tmp_path, "OBLIQ-Writing", before=before)
    assert reason in told
    assert not whole(tmp_path, "corpus.*")


def test_a_part_of_the_cache_is_never_taken_for_the_whole(
    everything: dict[str, dict[str, Any]], repos: list[Repo], home: Path, tmp_path: Path
) -> None:
    """Without the exclusions, say, everything else would still load, and score wrongly."""
    shutil.copytree(home, tmp_path / "home", symlinks=True)
    for path in (tmp_path / "home" / "hf").rglob("per_query_excluded_ids.json"):
        path.unlink()
    with LoopbackHub(repos) as hub:
        (told,) = errors(hub.url, tmp_path / "home", "OBLIQ-Writing", HF_HUB_OFFLINE="1")
        assert "not in the local cache" in told
        again = opened(hub.url, tmp_path / "home", "OBLIQ-Writing")
    assert again == {"OBLIQ-Writing": everything["OBLIQ-Writing"]}


def test_offline_the_mirror_is_never_another_revision(repos: list[Repo], tmp_path: Path) -> None:
    """`datasets`, left alone, takes the newest revision in its cache when the hub is out of reach."""
    other = f"import datasets; datasets.load_dataset('{MIRROR}', 'writing-corpus', revision='{'a' * 40}')"
    with LoopbackHub([replace(repos[1], revision="a" * 40), repos[1]]) as hub:
        opened(hub.url, tmp_path, "mirror:OBLIQ-Congress", before=other)
        (told,) = errors(hub.url, tmp_path, "mirror:OBLIQ-Writing", HF_HUB_OFFLINE="1")
    assert f"{MIRROR} at commit {MIRROR_REVISION[:12]} could not be fetched" in told
    assert "writing-corpus" in told


def test_exclusions_are_what_the_candidates_leave_out() -> None:
    candidates = iter([("q1", ["b"]), ("q2", ["a", "b", "c"]), ("q3", [])])
    assert exclusions_from_candidates(candidates, iter("abc")) == {
        "q1": frozenset("ac"),
        "q3": frozenset("abc"),
    }


# Folders, in this process


@pytest.fixture
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("OBLIQ_HOME", str(tmp_path / "home"))
    return tmp_path


@pytest.mark.parametrize("kind", ["official", "beir"])
def test_a_folder_s_revision_is_its_content(kind: str, folders: Path, own_home: Path) -> None:
    folder = own_home / "here"
    shutil.copytree(folders / kind / "OBLIQ-Math", folder)
    before = open_source(folder).dataset.revision
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert len(files) == 5
    for path in files:
        content = path.read_bytes()
        path.write_bytes(content + b"\n")  # a blank line changes nothing but the bytes
        assert open_source(folder).dataset.revision != before, path
        path.write_bytes(content)
    moved = folder.rename(own_home / "elsewhere")
    assert open_source(moved).dataset.revision == before
    (moved / "notes.txt").write_text("not a file of the layout")
    assert open_source(moved).dataset.revision == before


def test_a_file_more_is_another_revision(folders: Path, own_home: Path) -> None:
    shutil.copytree(folders / "official" / "OBLIQ-Writing", own_home / "f")
    before = open_source(own_home / "f").dataset
    (own_home / "f/queries+qrels/groups.json").write_text('{"post 0/snippet 0": "Ada", "unknown": "Bob"}')
    after = open_source(own_home / "f").dataset
    assert (before.groups, after.groups) == ({}, {"post 0/snippet 0": "Ada"})
    assert before.revision != after.revision


def test_all_missing_files_are_named(folders: Path, own_home: Path) -> None:
    folder = own_home / "f"
    shutil.copytree(folders / "official" / "OBLIQ-Congress", folder)
    (folder / "queries+qrels/qrels.tsv").unlink()
    with pytest.raises(UserError, match=r"f: queries\+qrels/qrels\.tsv is missing"):
        load(folder)
    (folder / "queries+qrels/queries.jsonl").unlink()
    with pytest.raises(UserError, match=r"2 problems") as caught:
        load(folder)
    assert "queries.jsonl is missing" in str(caught.value)
    assert "qrels.tsv is missing" in str(caught.value)
    (folder / "corpus/corpus.jsonl").unlink()
    with pytest.raises(UserError, match=r"holds neither corpus/corpus\.jsonl .* nor corpus\.jsonl"):
        load(folder)


def test_beir_s_judgments(folders: Path, own_home: Path) -> None:
    """One file is the one; of several, `test.tsv`; without it, or without any, there is nothing to go by."""
    folder = own_home / "f"
    shutil.copytree(folders / "beir" / "OBLIQ-Congress", folder)
    qrels = folder / "qrels"
    whole = load(folder).gold
    (qrels / "train.tsv").write_text("query-id\tcorpus-id\tscore\n")
    assert load(folder).gold == whole
    (qrels / "test.tsv").rename(qrels / "dev.tsv")
    with pytest.raises(UserError, match=r"holds qrels/dev\.tsv, qrels/train\.tsv; name one of them qrels/test\.tsv"):
        load(folder)
    (qrels / "train.tsv").unlink()
    assert load(folder).gold == whole
    (qrels / "dev.tsv").unlink()
    with pytest.raises(UserError, match=r"f: qrels/test\.tsv is missing"):
        load(folder)


def test_a_folder_with_both_layouts_is_read_as_the_official_one_and_says_so(
    folders: Path, own_home: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for kind in ("beir", "official"):
        open_source(folders / kind / "OBLIQ-Congress")
        shutil.copytree(folders / kind / "OBLIQ-Congress", own_home / "f", dirs_exist_ok=True)
    assert caplog.messages == []
    assert open_source(own_home / "f").dataset.corpus.source == "folder"
    (told,) = caplog.messages
    assert f"{own_home / 'f'} holds two layouts: the official one is read" in told


def test_a_folder_is_known_by_its_own_name_however_it_is_given(
    folders: Path, own_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folders / "official" / "OBLIQ-Math")
    assert open_source(".").dataset.name == "OBLIQ-Math"
    assert open_source("../OBLIQ-Writing/").dataset.name == "OBLIQ-Writing"


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("OBLIQ-Writng", 'neither a task nor a folder; did you mean "OBLIQ-Writing"? Tasks: OBLIQ-Twitter, '),
        ("obliq-mini-maths", 'did you mean "OBLIQ-Mini-Math"?'),
        ("zzz/zzz", "'zzz/zzz' is neither a task nor a folder. Tasks: "),
        ("mirror:OBLIQ-Writng", "the mirror has no task 'OBLIQ-Writng'; did you mean \"OBLIQ-Writing\"?"),
        ("mirror:OBLIQ-Mini-Math", "the mirror has no task"),
    ],
)
def test_an_unknown_name_is_told_the_near_one(name: str, sentence: str) -> None:
    with pytest.raises(UserError) as caught:
        load(name)
    assert sentence in str(caught.value)


def test_a_file_in_place_of_a_folder(own_home: Path) -> None:
    (own_home / "f").write_text("{}")
    with pytest.raises(UserError, match="neither a task nor a folder"):
        load(own_home / "f")


@pytest.mark.parametrize("name", MINI)
def test_the_bundled_sets_load_and_are_the_folder_s_content(name: str, own_home: Path) -> None:
    bundled, folder = load(name), load(MINI_FOLDER / MINI[name])
    assert (bundled.name, bundled.corpus.source, folder.corpus.source) == (name, "mini", "folder")
    assert bundled.revision == folder.revision
    assert bundled.queries == folder.queries
    assert bundled.gold == folder.gold
    assert bundled.queries.keys() == set(bundled.gold.queries) | set(bundled.pooled.queries if bundled.pooled else ())


def test_documents_alone_are_read_without_queries_and_judgments(repos: list[Repo], tmp_path: Path) -> None:
    """From the repository and from the mirror: the corpus is fetched, and no file of queries or judgments."""
    code = (
        "import sys; from obliq_eval.data.documents import read_source\n"
        "print([len(read_source(name).table) for name in sys.argv[1:]])"
    )
    with LoopbackHub(repos) as hub:
        env = {"HF_ENDPOINT": hub.url, "HF_HOME": str(tmp_path / "hf"), "OBLIQ_HOME": str(tmp_path / "obliq")}
        done = subprocess.run(
            [sys.executable, "-c", code, "OBLIQ-Math", "mirror:OBLIQ-Math"],
            env={**os.environ, **env, "NO_PROXY": "127.0.0.1"}, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        fetched = [path for method, path in hub.requests if "/resolve/" in path and method == "GET"]
    first, second = json.loads(done.stdout.splitlines()[-1])
    assert first == second > 0
    assert any("corpus" in path for path in fetched)
    assert not [path for path in fetched if "quer" in path or "qrels" in path or "top_ranked" in path], fetched
