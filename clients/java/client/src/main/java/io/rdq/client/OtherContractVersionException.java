package io.rdq.client;

import io.grpc.Status;
import java.util.Map;
import java.util.Optional;

/**
 * The server's contract has another major version than this client's, so a worker stops. The one
 * that no server sends.
 */
public final class OtherContractVersionException extends RdqException {
  /** The version of the contract that this client speaks, {@code major.minor}. */
  public static final String CLIENT_VERSION = "1.1";

  private OtherContractVersionException(Refusal refusal) {
    super(refusal, null);
  }

  /** What is wrong with a server of this version of the contract; empty if nothing is. */
  static Optional<OtherContractVersionException> of(String serverVersion) {
    if (major(serverVersion).equals(major(CLIENT_VERSION))) {
      return Optional.empty();
    }
    String message =
        "the server speaks version \"%s\" of the contract, this client %s"
            .formatted(serverVersion, CLIENT_VERSION);
    Map<String, String> metadata =
        Map.of("client_version", CLIENT_VERSION, "server_version", serverVersion);
    Refusal refusal =
        new Refusal(
            Status.Code.FAILED_PRECONDITION,
            "OTHER_CONTRACT_VERSION",
            message,
            metadata,
            Optional.empty());
    return Optional.of(new OtherContractVersionException(refusal));
  }

  private static String major(String version) {
    return version.split("\\.", 2)[0];
  }

  /** The version of the contract that the server speaks, {@code major.minor}. */
  public String serverVersion() {
    return text("server_version");
  }
}
