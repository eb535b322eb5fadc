package rdq

import (
	"fmt"

	rdqv1 "github.com/rdq-project/rdq/clients/go/gen/rdq/v1"
)

// routes finds the handler of a task: by handler_ref, then by version.
type routes map[string]*versions

// versions are the handlers of one handler_ref.
type versions struct {
	any       Handler            // registered without a version
	byVersion map[string]Handler // registered with one
	last      Handler            // that of the last version registered
}

func (r routes) add(handlerRef, version string, handler Handler) {
	if handler == nil {
		panic("rdq: nil handler for " + handlerRef)
	}
	of := r[handlerRef]
	if of == nil {
		of = &versions{byVersion: map[string]Handler{}}
		r[handlerRef] = of
	}
	_, taken := of.byVersion[version]
	if taken || (version == "" && of.any != nil) {
		panic(fmt.Sprintf("rdq: two handlers for %q, version %q", handlerRef, version))
	}
	if version == "" {
		of.any = handler
		return
	}
	of.byVersion[version], of.last = handler, handler
}

// find returns the handler of a claim, or the type and the message of the error that its task dies of.
func (r routes) find(claim *rdqv1.ClaimedTask) (handler Handler, errorType, message string) {
	task := claim.GetTask()
	of := r[task.GetHandlerRef()]
	if of == nil {
		return nil, TypeUnroutable, fmt.Sprintf("this worker has no handler %q", task.GetHandlerRef())
	}
	if version := task.GetHandlerVersion(); version != "" {
		if handler := of.byVersion[version]; handler != nil {
			return handler, "", ""
		}
		if claim.GetVersionMismatch() == rdqv1.HandlerVersionMismatch_HANDLER_VERSION_MISMATCH_DEAD_LETTER {
			return nil, TypeVersionMismatch,
				fmt.Sprintf("this worker has no version %q of handler %q", version, task.GetHandlerRef())
		}
	}
	if of.any != nil {
		return of.any, "", ""
	}
	return of.last, "", ""
}
