"""Makes a newer contract from ours, by adding fields of every kind, and generates its stubs.

Usage: newer_contract.py PROTO_FOLDER WORK_FOLDER. The stubs are in WORK_FOLDER/stubs.
"""

import pathlib
import shutil
import sys

import grpc_tools
from grpc_tools import protoc

# After this line of ours, these are added.
ADDED = {
    "  repeated Attempt attempts = 29;\n": """
  message Newer {
    string note = 1;
    Newer inner = 2;
    repeated sint32 numbers = 3;
  }
  enum NewerKind {
    NEWER_KIND_UNSPECIFIED = 0;
    NEWER_KIND_ODD = 7;
    NEWER_KIND_NEGATIVE = -3;
  }
  string newer_text = 40;
  Newer newer_message = 41;
  map<string, int64> newer_map = 42;
  repeated int32 newer_packed = 43;
  NewerKind newer_kind = 44;
  repeated string newer_strings = 45;
  fixed64 newer_fixed = 46;
  double newer_double = 47;
  optional bool newer_flag = 48;
  oneof newer_choice {
    float newer_float = 49;
    bytes newer_bytes = 60;
  }
  bytes newer_last = 536870911;
""",
    "  int32 folded_count = 7;\n": """
  string newer_text = 40;
  map<string, string> newer_map = 41;
  Task.Newer newer_message = 42;
  bytes newer_last = 536870911;
""",
    "  string stack = 4;\n": """
  string newer_text = 40;
  repeated int64 newer_packed = 41;
  Task.NewerKind newer_kind = 42;
""",
}


def main(proto: pathlib.Path, work: pathlib.Path) -> None:
    newer, stubs = work / "newer", work / "stubs"
    shutil.copytree(proto, newer)
    stubs.mkdir()
    task = newer / "rdq/v1/task.proto"
    text = task.read_text()
    for line, added in ADDED.items():
        assert text.count(line) == 1, f"the contract has no line {line!r} any more"
        text = text.replace(line, line + added)
    task.write_text(text)
    well_known = pathlib.Path(grpc_tools.__file__).parent / "_proto"
    files = [str(path) for path in sorted(newer.glob("rdq/v1/*.proto"))]
    failed = protoc.main(
        ["", f"-I{newer}", f"-I{well_known}", f"--python_out={stubs}", f"--grpc_python_out={stubs}", *files]
    )
    assert not failed, "protoc"


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]))
