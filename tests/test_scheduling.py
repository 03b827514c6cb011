import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
TEST = "import os\n\n\n"
TEST += "".join(f"def test_{at}():\n    print(__file__, os.getpid(), file=open('made', 'a'))\n" for at in range(9))


def test_a_file_and_a_shared_folder_run_in_one_process(tmp_path):
    shared = tmp_path / "tests" / "core" / "hostile"
    shared.mkdir(parents=True)
    for file in (tmp_path / "test_a.py", tmp_path / "test_b.py", shared / "test_c.py", shared / "test_d.py"):
        file.write_text(TEST)
    command = [sys.executable, "-P", "-m", "pytest", "-p", "tests.scheduling", "-n", "2", "--dist", "loadfile", "-q"]
    command += ["--import-mode=importlib", "--rootdir", str(tmp_path), "--no-loadscope-reorder", str(tmp_path)]
    subprocess.run(command, cwd=tmp_path, env={"PYTHONPATH": str(ROOT)}, check=True, capture_output=True)
    made = {tuple(line.split()) for line in (tmp_path / "made").read_text().splitlines()}
    assert sorted(Path(file).stem for file, _ in made) == ["test_a", "test_b", "test_c", "test_d"]
    process = {Path(file).stem: number for file, number in made}
    assert process["test_c"] == process["test_d"]
