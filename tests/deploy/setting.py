"""Where the build is; the tests of this folder, and what they share, can be imported."""
import os
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))


def build():
    return pathlib.Path(os.environ["DEPLOY_BUILD"]).resolve()
