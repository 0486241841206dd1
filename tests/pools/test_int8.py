"""The int8 trap: what the quantiser does depends on what the CPU multiplies with."""

import pytest

from turnout.pools.int8 import has_vnni


@pytest.mark.parametrize(
    ("cpuinfo", "answer"),
    [
        ("flags\t\t: fpu avx2\n", False),
        ("processor : 0\nflags\t\t: fpu avx2 avx_vnni\n", True),
        ("flags : avx512_vnni\n", True),
        ("Features\t: fp asimd asimddp\n", True),
        ("nothing of the kind\n", False),
        ("", False),
    ],
)
def test_vnni_is_read_from_the_cpus_flags(tmp_path, cpuinfo, answer):
    """Only a flag that names the instructions counts; without one the safe choice is made."""
    path = tmp_path / "cpuinfo"
    path.write_text(cpuinfo)
    assert has_vnni(path) is answer


def test_an_unknown_cpu_has_no_vnni(tmp_path):
    """Where nothing can be read the safe choice is made."""
    assert not has_vnni(tmp_path / "none")
