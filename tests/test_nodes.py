"""Node lists of the site, and the host lists that Slurm prints."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from machine import ordinary_user

from cedana_poc.errors import UserError
from cedana_poc.nodes import NodeSize, expand, read_nodes

ONE_LINE = """\
NodeName=cn001 Arch=x86_64 CoresPerSocket=32 CPUAlloc=0 CPUEfctv=64 CPUTot=64 CPULoad=0.01 \
AvailableFeatures=icelake ActiveFeatures=icelake Gres=(null) NodeAddr=cn001 NodeHostName=cn001 \
Version=23.02.7 OS=Linux 5.14.0-362.el9 #1 SMP Wed Nov 8 RealMemory=257000 AllocMem=0 \
State=IDLE Partitions=cpu,all CfgTRES=cpu=64,mem=257000M,billing=64 AllocTRES= Comment=(null)
NodeName=gpu01 Arch=x86_64 CPUTot=128 Gres=gpu:a100:4(S:0-1),shard:16 RealMemory=1031000 \
State=DOWN CfgTRES=cpu=128,mem=1031000M,billing=128,gres/gpu=4,gres/gpu:a100=4 \
Reason=swap CPUTot=1 RealMemory=1 Gres=gpu:9 [root@2026-06-01T00:00:00]
"""

SEVERAL_LINES = """\
NodeName=cn001 Arch=x86_64 CoresPerSocket=32
   CPUAlloc=0 CPUTot=64 CPULoad=0.01
   Gres=(null)
   NodeAddr=cn001 NodeHostName=cn001 Version=20.11.8
   OS=Linux 3.10.0 #1 SMP Wed Oct 13
   RealMemory=257000 AllocMem=0 Sockets=2 Boards=1
   CfgTRES=cpu=64,mem=257000M,billing=64

NodeName=gpu01 Arch=x86_64 CoresPerSocket=64
   CPUAlloc=0 CPUTot=128 CPULoad=0.01
   Gres=gpu:a100:4(S:0-1),shard:16
   RealMemory=1031000 AllocMem=0
   CfgTRES=cpu=128,mem=1031000M,billing=128,gres/gpu=4

"""

CSV = """\
node,cpus,memory_mb,gpus
cn001,64,257000,0
gpu01,128,1031000,4
"""


def node_file(folder: Path, text: str) -> Path:
    path = folder / "nodes.txt"
    path.write_text(text, encoding="utf-8")
    return path


# --- node files ---


@pytest.mark.parametrize("text", [CSV, ONE_LINE, SEVERAL_LINES], ids=["csv", "oneliner", "show"])
def test_every_form_of_the_list_gives_the_same_nodes(tmp_path: Path, text: str) -> None:
    nodes = read_nodes(node_file(tmp_path, text))

    assert nodes.sizes == {"cn001": NodeSize(64, 257_000, 0), "gpu01": NodeSize(128, 1_031_000, 4)}
    assert nodes.totals == NodeSize(192, 1_288_000, 4)


def test_csv_may_have_other_columns_any_order_case_bom_and_crlf(tmp_path: Path) -> None:
    text = '\ufeffNode, GPUs ,Rack,Memory_MB,CPUs\r\n\r\n"cn[001-003,7]",0,7, 1000 ,8\r\n'

    nodes = read_nodes(node_file(tmp_path, text))

    assert dict.fromkeys(["cn001", "cn002", "cn003", "cn7"], NodeSize(8, 1000, 0)) == nodes.sizes


@pytest.mark.parametrize(
    ("gres", "gpus"),
    [
        ("Gres=(null)", 0),
        ("Gres=", 0),
        ("", 0),
        ("Gres=gpu", 1),
        ("Gres=gpu:4", 4),
        ("Gres=gpu:a100", 1),
        ("Gres=gpu:a100:2(S:0,1)", 2),
        ("Gres=gpu:a100:2(S:0-1),gpu:h100:6(S:2,3),shard:64,gpumem:80G", 8),
        ("Gres=gpu:1g.10gb:7", 7),
        ("Gres=gpu:4 CfgTRES=cpu=1,mem=1G", 4),
        ("Gres=gpu:4 CfgTRES=cpu=1,gres/gpu:a100=2", 4),
        ("Gres=gpu:4 CfgTRES=cpu=1,gres/gpu=8,gres/gpu:a100=8", 8),
        ("Gres=(null) CfgTRES=", 0),
    ],
)
def test_gpus_are_counted_once_however_they_are_printed(
    tmp_path: Path, gres: str, gpus: int
) -> None:
    nodes = read_nodes(node_file(tmp_path, f"NodeName=n1 CPUTot=1 RealMemory=1 {gres}\n"))

    assert nodes.sizes["n1"].gpus == gpus


def test_node_of_several_partitions_counts_once(tmp_path: Path) -> None:
    nodes = read_nodes(node_file(tmp_path, CSV + 'cn001,64,257000,0\n"cn[001-002]",64,257000,0\n'))

    assert nodes.totals == NodeSize(64 + 64 + 128, 257_000 * 2 + 1_031_000, 4)


def test_node_sizes_cannot_be_changed(tmp_path: Path) -> None:
    nodes = read_nodes(node_file(tmp_path, CSV))

    with pytest.raises(TypeError):
        nodes.sizes["cn001"] = NodeSize(1, 1, 1)  # type: ignore[index]


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        (CSV + "cn001,32,257000,0\n", 4, "node cn001 was listed before with another size"),
        (CSV + "cn2,sixty,1,0\n", 4, "cpus is 'sixty'"),
        (CSV + "cn2,0,1,0\n", 4, "cpus is '0', not a whole number from 1 up"),
        (CSV + "cn2,1,1.5,0\n", 4, "memory_mb is '1.5'"),
        (CSV + "cn2,1,1G,0\n", 4, "memory_mb is '1G'"),
        (CSV + "cn2,1,1,-1\n", 4, "gpus is '-1', not a whole number from 0 up"),
        (CSV + "cn2,1,1,\n", 4, "gpus is ''"),
        (CSV + "cn2,1,1,\u0661\n", 4, "gpus is '\u0661'"),
        (CSV + "cn2,1,1,1_0\n", 4, "gpus is '1_0'"),
        (CSV + "\n\ncn[1-,1,1,0\n", 6, "node 'cn[1-' is no host name or host list"),
        (CSV + ",1,1,0\n", 4, "node '' is no host name"),
        (CSV + "None assigned,1,1,0\n", 4, "node 'None assigned' is no host name"),
        (CSV + "cn2,1,1\n", 4, "3 fields, but the header has 4"),
        (CSV + "cn[1,3],1,1,0\n", 4, 'a host list with a comma needs quotes: "cn[1-4,7]"'),
        (CSV + '"cn2,1,1,0\n', 4, "is no CSV: unexpected end of data"),
        ("\nnode,cpus,gpus\n", 2, "the header has not exactly one column memory_mb"),
        ("node,cpus,cpus,memory_mb,gpus\n", 1, "not exactly one column cpus"),
        ("<html>\n", 1, "the output of scontrol show nodes"),
        (ONE_LINE + "NodeName=x RealMemory=1\n", 3, "node x has no CPUTot"),
        (SEVERAL_LINES + "NodeName=x\n   CPUTot=1\n", 15, "node x has no RealMemory"),
        ("NodeName=x CPUTot=no RealMemory=1\n", 1, "CPUTot is 'no'"),
        ("NodeName=x CPUTot=1 RealMemory=N/A\n", 1, "RealMemory is 'N/A'"),
        (
            "NodeName=x CPUTot=1 RealMemory=1 CfgTRES=cpu=1,gres/gpu=many\n",
            1,
            "gres/gpu in CfgTRES is 'many'",
        ),
        ("NodeName= CPUTot=1 RealMemory=1\n", 1, "node '' is no host name"),
    ],
)
def test_wrong_line_is_named_with_its_field(
    tmp_path: Path, text: str, line: int, words: str
) -> None:
    path = node_file(tmp_path, text)

    with pytest.raises(UserError) as error:
        read_nodes(path)

    assert str(error.value).startswith(f"{path}, line {line}: ")
    assert words in str(error.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "is empty"),
        (" \n\n", "is empty"),
        ("node,cpus,memory_mb,gpus\n\n", "lists no node"),
    ],
)
def test_list_without_nodes_says_which_forms_are_read(
    tmp_path: Path, text: str, words: str
) -> None:
    with pytest.raises(UserError, match=f"{words}; give CSV with the header node,cpus"):
        read_nodes(node_file(tmp_path, text))


def test_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "latin1").write_bytes(b"n\xf6de,cpus,memory_mb,gpus\n")

    for path, words in (
        (tmp_path / "missing", "No such file"),
        (tmp_path, "Is a directory"),
        (tmp_path / "latin1", "is not UTF-8 text"),
    ):
        with pytest.raises(UserError, match=f"^{path}: .*{words}"):
            read_nodes(path)
    closed = node_file(tmp_path, CSV)
    closed.chmod(0)
    with ordinary_user(), pytest.raises(UserError, match="Permission denied"):
        read_nodes(closed)


@given(st.binary(max_size=200) | st.text(max_size=200).map(str.encode))
def test_no_file_gives_anything_but_nodes_or_a_user_error(data: bytes) -> None:
    class Given(type(Path())):  # type: ignore[misc]
        """A path whose content is given."""

        def read_text(self, encoding: str) -> str:
            return data.decode(encoding)

    for start in (b"", b"node,cpus,memory_mb,gpus\n", b"NodeName=a CPUTot=1 RealMemory=1 "):
        data = start + data
        try:
            assert read_nodes(Given("nodes")).sizes
        except UserError as error:
            assert str(error).startswith("nodes")


# --- host lists ---


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("cn1", ["cn1"]),
        ("login-2.site_a", ["login-2.site_a"]),
        (" cn1 ", ["cn1"]),
        ("cn[001-003]", ["cn001", "cn002", "cn003"]),
        ("cn[9-11]", ["cn9", "cn10", "cn11"]),
        ("cn[001,005-006],gpu1", ["cn001", "cn005", "cn006", "gpu1"]),
        ("rack[1-2]n[1-2]", ["rack1n1", "rack1n2", "rack2n1", "rack2n2"]),
        ("nid[001000,001122-001123]", ["nid001000", "nid001122", "nid001123"]),
        ("a1,a1,b1", ["a1", "b1"]),
    ],
)
def test_host_list_gives_each_name_once(text: str, names: list[str]) -> None:
    assert sorted(expand(text)) == sorted(names)


@pytest.mark.parametrize(
    "text",
    [
        *("", " ", "None assigned", "None assig+", "(null)", "(unknown)"),
        *("cn[001-0+", "cn[001-003", "cn[1,", "cn1,cn2,", "cn[1-3],c[5"),
        *("cn[1-3]!cn2", "@all", "*", "a&b", "cn1;reboot", "cn[1-4/2]"),
        *("cn[3-1]", "cn[[1-2]]", "cn]1[", "cn[]", "cn[a-b]", "größe", "cn[\u0661-\u0663]"),
        *("n" + "[1-300]" * 3, "cn[1-999999999999]", f"cn[1-{'9' * 5000}]", f"cn[{'9' * 5000}]"),
    ],
)
def test_what_is_no_whole_host_list_gives_no_name(text: str) -> None:
    started = time.monotonic()

    assert expand(text) == []
    assert time.monotonic() - started < 1


def test_changing_the_result_does_not_change_the_next_one() -> None:
    expand("cn[1-3]").clear()

    assert len(expand("cn[1-3]")) == 3


@given(st.text(alphabet="cn01239[]-,. @&^!*/%+(", max_size=24))
def test_no_text_makes_expand_fail(text: str) -> None:
    assert all(expand(text)) or expand(text) == []


@given(
    st.lists(st.tuples(st.sampled_from(["cn", "gpu-"]), st.integers(1, 400)), min_size=1),
    st.sampled_from([1, 3]),
)
def test_folded_names_come_back(names: list[tuple[str, int]], digits: int) -> None:
    wanted = {f"{prefix}{number:0{digits}}" for prefix, number in names}
    folded = ",".join(
        f"{prefix}[{','.join(f'{number:0{digits}}' for each, number in names if each == prefix)}]"
        for prefix in {prefix for prefix, _ in names}
    )

    assert set(expand(folded)) == wanted
