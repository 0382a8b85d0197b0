# SPDX-License-Identifier: Apache-2.0
"""Shared fixtures: the tiny models, written once per run, and where real data and peers are."""
import os
import pathlib
import sys

import pytest

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(HERE), str(ROOT / "bench" / "peers")]

pytest.importorskip("numpy")
pytest.importorskip("gguf")

import make_tiny  # noqa: E402


def test_data(*parts):
    """A path under the shared data folder, or a visible skip."""
    base = pathlib.Path(os.environ.get("FTK_TEST_DATA", ROOT.parent / "shared" / "data"))
    path = base.joinpath(*parts)
    if not path.exists():
        pytest.skip(f"{path} is absent; FTK_TEST_DATA names another folder")
    return path


@pytest.fixture(scope="session")
def tiny(tmp_path_factory):
    """tiny(family, kind) -> path of a random model."""
    folder = tmp_path_factory.mktemp("tiny")

    def path_of(family, kind="F32"):
        path = folder / f"{family}-{kind.lower()}.gguf"
        if not path.exists():
            make_tiny.write_random(path, family, kind)
        return path

    return path_of


@pytest.fixture(scope="session")
def stories(tmp_path_factory):
    source = test_data("models", "stories260k")
    path = tmp_path_factory.mktemp("stories") / "stories260k.gguf"
    make_tiny.convert_llama2c(source / "stories260K.bin", source / "tok512.bin", path)
    return path
