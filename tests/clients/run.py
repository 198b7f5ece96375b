"""Runs the tests of this folder, or those named (tritonclient_test, kserve_test.Errors, ...):
run.py BUILD [TEST ...]. The last line is the totals; exit status 1 where one failed."""
import pathlib
import sys
import unittest

import served


def test_id(test):
    return getattr(test, "test_case", test).id()


def main():
    build, names = pathlib.Path(sys.argv[1]).resolve(), sys.argv[2:]
    served.use(build)
    loader = unittest.TestLoader()
    if names:
        suite = loader.loadTestsFromNames(names)
    else:
        suite = loader.discover(str(pathlib.Path(__file__).parent), pattern="*_test.py")
    result = unittest.TextTestRunner(stream=sys.stdout, verbosity=2).run(suite)
    # A test with sub-tests can be there several times.
    failed = len({test_id(test) for test, _ in result.failures + result.errors})
    passed = result.testsRun - failed - len(result.skipped)
    try:
        served.stop_shared()
    except RuntimeError as error:
        print(error)
        failed += 1
    for test, reason in result.skipped:
        print(f"not run: {test}: {reason}")
    print(f"{passed} passed, {failed} failed")
    return 1 if failed or passed <= 0 else 0


if __name__ == "__main__":
    sys.exit(main())
