"""Model files: read, refused, fingerprinted."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from obliq_eval.catalogue import to_meta
from obliq_eval.errors import UserError
from obliq_models import specs
from obliq_models.encoders.sentence import SentenceEncoder
from obliq_models.retrievers.dense import DenseRetriever
from obliq_models.specs import anchored, fingerprint, read_spec

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    model = tmp_path / "weights"
    model.mkdir()
    (model / "config.json").write_text("{}")
    return model


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "my-model.toml"
    path.write_text(text)
    return path


def test_a_spec_becomes_an_entry_that_loads(tmp_path: Path, tiny_model: Callable[..., Path]) -> None:
    tiny_model(name="tiny")
    spec = write(
        tmp_path,
        'name = "mine"\npath = "tiny"\nquery_prefix = "query: "\nquery_length = 5\npooling = "lasttoken"\n'
        'dtype = "bfloat16"\nnormalize = false\nlicence = "mit"\n',
    )
    entry = read_spec(spec)
    assert (entry.name, entry.alias, entry.query_length, entry.document_length) == ("local/mine", "mine", 5, None)
    model = to_meta(entry).load_model(device="cpu")
    assert isinstance(model, DenseRetriever)
    assert isinstance(model.encoder, SentenceEncoder)
    assert model.encoder.prompt("query") == "query: "
    assert model.encoder.model[1].pooling_mode == "lasttoken"
    assert not np.isclose(np.linalg.norm(model.encode(["the cat"], "query")), 1, atol=1e-2)


def test_all_problems_are_told_at_once(tmp_path: Path) -> None:
    spec = write(tmp_path, 'name = "a b"\npath = "nowhere"\nquery_lenght = 3\npooling = "meen"\nnormalize = "yes"\n')
    with pytest.raises(UserError) as caught:
        read_spec(spec)
    message = str(caught.value)
    assert "my-model.toml: 5 problems" in message
    assert 'query_lenght is not a key of a model file; did you mean "query_length"?' in message
    assert "name: " in message
    assert "pooling: input should be 'mean', 'cls'" in message
    assert "normalize: input should be a valid boolean" in message
    assert "nowhere holds no model" in message


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name = ", "is not a TOML file"),
        ('name = "x"\n', "path is missing"),
        ('name = "x"\npath = 3\n', "path: input should be a valid string"),
        ('name = "x"\npath = "weights"\nquery_length = 0\n', "query_length: input should be greater"),
        ('name = "a/b/c"\npath = "weights"\n', r"toml: name: a name has at most one slash"),
        ('name = "a\\u0000b"\npath = "weights"\n', "none of blanks, control characters"),
        (f'name = "{"é" * 48}"\npath = "weights"\n', "at most 100 bytes with its organisation, not 102"),
        ('name = "x"\npath = "o\\u0000k"\n', r"path: '.*o\\x00k' cannot be a folder, it holds a NUL character"),
        (f'name = "x"\npath = "{"x" * 300}"\n', r"path: cannot read .*xxx: File name too long"),
    ],
)
def test_one_problem_is_one_sentence(tmp_path: Path, folder: Path, text: str, message: str) -> None:
    with pytest.raises(UserError, match=message) as caught:
        read_spec(write(tmp_path, text))
    assert "\n" not in str(caught.value)


def test_a_name_of_a_hundred_bytes_and_a_byte_order_mark_are_taken(tmp_path: Path, folder: Path) -> None:
    """`local/` has six bytes, the name of 47 accented letters 94."""
    spec = write(tmp_path, f'\ufeffname = "{"é" * 47}"\npath = "weights"\n')
    assert spec.read_bytes().startswith(b"\xef\xbb\xbf")
    assert read_spec(spec).name == "local/" + "é" * 47


def test_a_folder_that_cannot_be_read_is_one_sentence(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path, *_: object) -> None:
        raise PermissionError(13, "Permission denied", str(path / "config.json"))

    monkeypatch.setattr(specs, "fingerprint", refuse)
    with pytest.raises(UserError, match=r"my-model\.toml: cannot read .*config\.json: Permission denied"):
        read_spec(write(tmp_path, 'name = "x"\npath = "weights"\n'))


def test_a_missing_file_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"cannot read .*none\.toml"):
        read_spec(tmp_path / "none.toml")


def test_the_revision_covers_content_and_settings(tmp_path: Path, folder: Path) -> None:
    base = 'name = "mine"\npath = "weights"\n'
    first = read_spec(write(tmp_path, base)).revision
    assert read_spec(write(tmp_path, base + 'summary = "said otherwise"\n')).revision == first
    seen = {first}
    for line in ('query_prefix = "q: "', "document_length = 9", 'dtype = "float16"', "normalize = false"):
        seen.add(read_spec(write(tmp_path, f"{base}{line}\n")).revision)
    assert len(seen) == 5
    (folder / "config.json").write_text('{"a": 1}')
    assert read_spec(write(tmp_path, base)).revision not in seen


def test_fingerprint_sees_names_and_leaves_hidden_files_out(folder: Path) -> None:
    before = fingerprint(folder)
    (folder / ".cache").mkdir()
    (folder / ".cache" / "x").write_text("x")
    assert fingerprint(folder) == before
    (folder / "config.json").rename(folder / "other.json")
    assert fingerprint(folder) != before


def test_a_server_is_routed_to_its_loader_and_no_key_is_asked_for(tmp_path: Path) -> None:
    text = (
        'name = "mine"\nserver = "openai"\nserver_model = "m"\nkey_env = "MY_KEY"\ndimensions = 8\nquery_prefix = "q"\n'
    )
    entry = read_spec(write(tmp_path, text))
    assert entry.loader == "obliq_models.encoders.api:load"
    assert entry.settings == {"server": "openai", "server_model": "m", "key_env": "MY_KEY", "dimensions": 8}
    assert (entry.dims, entry.query_prefix) == (8, "q")
    others = {read_spec(write(tmp_path, text + line)).revision for line in ("normalize = false\n", "batch_size = 2\n")}
    assert len({entry.revision, *others, read_spec(write(tmp_path, text.replace("mine", "yours"))).revision}) == 4


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('server = "openai"\n', "server_model is missing"),
        ('server = "opnai"\nserver_model = "m"\n', "server: input should be 'openai'"),
        ('server = "openai"\nserver_model = "m"\npath = "weights"\n', "server is given and path too: leave one out"),
        ('server = "openai"\nserver_model = "m"\ndtype = "float32"\n', "dtype means nothing beside server"),
        ('model = "obliq-it"\n', "model: no model is called 'obliq-it'; did you mean \"obliq-ir\""),
        ('model = "bm25"\nquery_prefix = "q"\n', "query_prefix means nothing beside model bm25"),
        ('model = "obliq-ir-no-distillation"\n', "path is missing: obliq-ir-no-distillation has no published weights"),
        ('model = "obliq-ir"\npath = "nowhere"\n', "path: .*nowhere holds no model"),
        ('path = "weights"\nserver_model = "m"\n', "server_model means nothing beside path"),
        ('path = "weights"\nstorge = "float16"\n', 'storge is not a key of a model file; did you mean "storage"'),
        ('path = "adapter"\n', "path: adapter holds an adapter; say what it is a checkpoint of"),
    ],
)
def test_where_a_model_comes_from_is_said_once_and_with_keys_that_mean_something(
    tmp_path: Path, folder: Path, text: str, message: str
) -> None:
    (tmp_path / "adapter").mkdir()
    (tmp_path / "adapter" / "adapter_config.json").write_text("{}")
    with pytest.raises(UserError, match=message) as caught:
        read_spec(write(tmp_path, f'name = "x"\n{text}'))
    assert "\n" not in str(caught.value)


def test_a_checkpoint_by_file_takes_the_base_beside_the_file_and_keys_of_its_loader(tmp_path: Path) -> None:
    for name, file in (("adapter", "adapter_config.json"), ("base", "config.json")):
        (tmp_path / name).mkdir()
        (tmp_path / name / file).write_text("{}")
    spec = 'name = "mine"\nmodel = "obliq-ir"\npath = "adapter"\nbase = "base"\n'
    entry = read_spec(write(tmp_path, spec + 'trust_remote_code = true\nstorage = "float16"\nlicence = "mit"\n'))
    assert (entry.name, entry.loader) == ("local/mine", "obliq_models.retrievers.obliq_ir:load")
    assert entry.settings == {
        "dtype": "bfloat16",
        "base": str(tmp_path / "base"),
        "trust_remote_code": True,
        "storage": "float16",
        "path": str(tmp_path / "adapter"),
    }
    assert (entry.query_prefix, entry.licence) == ("query: ", "mit")
    (tmp_path / "base" / "config.json").write_text('{"other": 1}')
    assert read_spec(write(tmp_path, spec)).revision != entry.revision


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('model = "oracle-tournament"\nsolutions = "a\\u0000b"\n', "solutions: it holds a NUL character"),
        ('model = "obliq-ir"\nbase = ""\n', "base: it is empty; leave it out"),
        ('model = "luar"\nretriever = 7\n', "retriever"),
        ('model = "bm25"\nwindow = 32\n', "window means nothing beside model bm25"),
    ],
)
def test_values_that_name_nothing_are_refused(tmp_path: Path, text: str, message: str) -> None:
    from obliq_models.naming import find

    with pytest.raises(UserError, match=message):
        find(str(write(tmp_path, f'name = "x"\n{text}')))


def test_every_loader_takes_what_its_entry_tells_one_to_set(tmp_path: Path) -> None:
    """Pickles may be allowed wherever the table says that there are only pickles.

    Gemini may have the task in the text, and vectors that are shorter than the table says.
    """
    for alias, line in (
        ("star", "allow_pickle = true"),
        ("style-embedding", "allow_pickle = true"),
        ("luar", "window = 32\nepisode = 4"),
        ("luar", 'allow_pickle = true\nrevision = "6bbc5d9bd99209d2e63604f18e60e519838f74c5"'),
        ("lateon", "document_length = 512"),
        ("qwen3-embed-0.6b", 'dtype = "float32"'),
        ("gemini-2-embedding", 'task_as = "text"\nstorage = "float16"'),
    ):
        entry = read_spec(write(tmp_path, f'name = "x"\nmodel = "{alias}"\n{line}\n'))
        for pair in line.splitlines():
            key, value = pair.split(" = ")
            found = {**entry.settings, "document_length": entry.document_length, "revision": entry.settings["at"]}[key]
            assert str(found).lower() == value.strip('"')
    shorter = read_spec(write(tmp_path, 'name = "x"\nmodel = "gemini-2-embedding"\ndimensions = 768\n'))
    assert shorter.dims == 768


def test_what_stands_after_m_is_relative_to_the_file(tmp_path: Path) -> None:
    (tmp_path / "a+b").mkdir()
    for text, whole in (
        ("minilm", "minilm"),
        ("luar+listwise", "luar+listwise"),
        ("x.toml", f"{tmp_path}/x.toml"),
        ("obliq-ir@run 7", f"obliq-ir@{tmp_path}/run 7"),
        ("obliq-ir@a+b", f"obliq-ir@{tmp_path}/a+b"),
        ("fuse:bm25, x.toml,minilm@y", f"fuse:bm25,{tmp_path}/x.toml,minilm@{tmp_path}/y"),
    ):
        assert anchored(text, tmp_path) == whole
