"""Which contract this client speaks, and whether a server speaks it too."""

from __future__ import annotations

from grpc import StatusCode

from .errors import OtherContractVersion

#: `major.minor` of the contract that the stubs are made from.
CONTRACT_VERSION = "1.1"


def check(server_version: str) -> None:
    """
    Args:
        server_version: `major.minor`, as the server says it.

    Raises:
        OtherContractVersion: its major version is another.
    """
    if server_version.partition(".")[0] != CONTRACT_VERSION.partition(".")[0]:
        raise OtherContractVersion(
            f"the server speaks version {server_version!r} of the contract, this client {CONTRACT_VERSION}",
            code=StatusCode.FAILED_PRECONDITION,
            reason=OtherContractVersion.REASON,
            metadata={"client_version": CONTRACT_VERSION, "server_version": server_version},
        )
