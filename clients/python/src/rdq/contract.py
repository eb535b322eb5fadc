"""The contract's messages, as they are generated: what `Client.services` sends and answers.

Their fields and what they mean are documented in the contract, the files of `proto/rdq/v1`.
"""

from ._stubs.v1.error_reason_pb2 import *  # noqa: F403
from ._stubs.v1.ledger_service_pb2 import *  # noqa: F403
from ._stubs.v1.lock_service_pb2 import *  # noqa: F403
from ._stubs.v1.outbox_service_pb2 import *  # noqa: F403
from ._stubs.v1.queue_service_pb2 import *  # noqa: F403
from ._stubs.v1.record_service_pb2 import *  # noqa: F403
from ._stubs.v1.schedule_service_pb2 import *  # noqa: F403
from ._stubs.v1.signal_service_pb2 import *  # noqa: F403
from ._stubs.v1.stream_service_pb2 import *  # noqa: F403
from ._stubs.v1.task_pb2 import *  # noqa: F403
from ._stubs.v1.task_service_pb2 import *  # noqa: F403
from ._stubs.v1.transaction_service_pb2 import *  # noqa: F403
