package rdq

import (
	"context"
	"fmt"
	"strings"

	"google.golang.org/grpc/codes"

	rdqv1 "github.com/rdq-project/rdq/clients/go/gen/rdq/v1"
)

// ContractVersion is the version of the contract that this package speaks, "major.minor".
const ContractVersion = "1.1"

// contractError is what is wrong with a server of this version of the contract, nil if nothing is.
func contractError(serverVersion string) error {
	ours, _, _ := strings.Cut(ContractVersion, ".")
	if theirs, _, _ := strings.Cut(serverVersion, "."); theirs == ours {
		return nil
	}
	return &Error{
		Code: codes.FailedPrecondition, Reason: ErrOtherContractVersion,
		Message: fmt.Sprintf("the server speaks version %q of the contract, this client %s",
			serverVersion, ContractVersion),
		Metadata: map[string]string{"client_version": ContractVersion, "server_version": serverVersion},
	}
}

// askContract asks which contract the server speaks. An error says why no stream should be opened now: the server speaks
// another one, or cannot be asked. Something on the way that does not let this call through may well let the stream: so
// isKnown can be false without an error.
func (w *Worker) askContract(ctx context.Context) (isKnown bool, err error) {
	asking, end := context.WithTimeout(ctx, tryWithin)
	defer end()
	if !w.mayOpen(end) {
		return false, errLeave
	}
	response, err := w.client.tasks.GetCapabilities(asking, &rdqv1.GetCapabilitiesRequest{})
	if failure := FromError(err); failure != nil {
		if failure.Retryable() {
			return false, failure
		}
		return false, nil
	}
	return true, contractError(response.GetContractVersion())
}
