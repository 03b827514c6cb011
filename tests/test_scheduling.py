import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
TEST = "import os\n\n\n"
EXPORTS = ("tests/plugins/hub/test_graph", "tests/test_extending")
TEST += "".join(f"def test_{at}():\n    print(__file__, os.getpid(), file=open('made', 'a'))\n" for at in range(9))


def test_a_file_and_a_group_of_files_run_in_one_process(tmp_path):
    for name in ("test_a", "tests/core/hostile/test_c", "tests/core/hostile/test_d", *EXPORTS):
        file = tmp_path / f"{name}.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(TEST)
    command = [sys.executable, "-P", "-m", "pytest", "-p", "tests.scheduling", "-n", "2", "--dist", "loadfile", "-q"]
    command += ["--import-mode=importlib", "--rootdir", str(tmp_path), "--no-loadscope-reorder", str(tmp_path)]
    environment = {"PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}  # others take a second to import
    subprocess.run([*command, "-p", "xdist"], cwd=tmp_path, env=environment, check=True, capture_output=True)
    made = {tuple(line.split()) for line in (tmp_path / "made").read_text().splitlines()}
    assert sorted(Path(file).stem for file, _ in made) == ["test_a", "test_c", "test_d", "test_extending", "test_graph"]
    process = {Path(file).stem: number for file, number in made}
    assert process["test_c"] == process["test_d"]
    assert process["test_graph"] == process["test_extending"]
