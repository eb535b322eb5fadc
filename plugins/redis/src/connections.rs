//! The way to the server: a pool of connections, and calls of the library through it. It knows no
//! function by name.

use crate::{
    config::RedisConfig,
    errors::{self, Access, Class},
    library::Library,
    replies::Reply,
    requests::Args,
};
use deadpool::managed::{
    self, Metrics, Object, Pool, PoolConfig, PoolError, QueueMode, RecycleResult, Timeouts,
};
use deadpool_redis::{Manager, Runtime};
use rdq_spi::{Result, StorageError};
use redis::{
    AsyncConnectionConfig, RedisError, Value,
    aio::{ConnectionLike, MultiplexedConnection},
};
use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

const CONNECTIONS_MAX: usize = 10;
/// For a connection of the pool, made or checked: nothing was sent before it is over.
const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(5);
/// To make a connection, or to check one: a server that lives answers much sooner.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// For an answer. The client's own default of 500 ms is less than a slow disk takes for a sync, and
/// whoever gives up does not know what became of the call.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(10);

/// A connection that was used so lately is taken for alive: should it be dead, nobody knows what
/// became of the call. To ask each before each call whether it lives, as the pool does by itself,
/// takes as long as the call.
const TRUSTED_IDLE: Duration = Duration::from_millis(500);

/// A library that is gone is loaded so often for one call: it may go again in between.
const LOADS_MAX: usize = 3;

/// The names of what the store holds, in the order in which functions take them. They have one hash
/// tag, so that a cluster keeps them together.
const KEYS: [&str; 17] = [
    "state",
    "tasks",
    "bodies",
    "history",
    "index",
    "runs",
    "tallies",
    "served",
    "queues",
    "secrets",
    "locks",
    "records",
    "names",
    "streams",
    "events",
    "mutations",
    "observed",
];

/// The place of the key of streams.
const STREAMS: usize = 13;

/// Makes connections, and checks those that idled.
pub(crate) struct Connector(Manager);

/// A connection of the pool.
pub(crate) type Connection = Object<Connector>;

impl managed::Manager for Connector {
    type Type = MultiplexedConnection;
    type Error = RedisError;

    async fn create(&self) -> std::result::Result<MultiplexedConnection, RedisError> {
        self.0.create().await
    }

    async fn recycle(
        &self,
        connection: &mut MultiplexedConnection,
        metrics: &Metrics,
    ) -> RecycleResult<RedisError> {
        if metrics.last_used() <= TRUSTED_IDLE {
            return Ok(());
        }
        self.0.recycle(connection, metrics).await
    }
}

/// Calls of one store's functions. Dropping it closes the connections.
pub(crate) struct Connections {
    pool: Pool<Connector>,
    library: Library,
    keys: [String; KEYS.len()],
    is_closed: AtomicBool,
}

impl std::fmt::Debug for Connections {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connections").field("keys", &self.keys).finish_non_exhaustive()
    }
}

impl Connections {
    /// Connects nowhere yet.
    pub(crate) fn new(config: &RedisConfig) -> std::result::Result<Self, RedisError> {
        let settings = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(CONNECT_TIMEOUT))
            .set_response_timeout(Some(RESPONSE_TIMEOUT));
        let manager = Manager::new_with_config(config.address.clone(), settings)?;
        let timeouts = Timeouts {
            wait: Some(ACQUIRE_TIMEOUT),
            create: Some(CONNECT_TIMEOUT),
            recycle: Some(CONNECT_TIMEOUT),
        };
        let pool = Pool::builder(Connector(manager))
            .config(PoolConfig {
                max_size: CONNECTIONS_MAX,
                timeouts,
                // The one that was used last is the least likely to be dead.
                queue_mode: QueueMode::Lifo,
            })
            .runtime(Runtime::Tokio1)
            .build()
            .expect("a runtime is given");
        Ok(Self {
            pool,
            library: Library::new(),
            keys: KEYS.map(|key| format!("rdq:{{{}}}:{key}", config.namespace)),
            is_closed: AtomicBool::new(false),
        })
    }

    /// The channel of hints, which is named as the state's key is.
    pub(crate) fn channel(&self) -> &str {
        &self.keys[0]
    }

    /// The channel of wakes, which is named as the key of streams is.
    pub(crate) fn wakes_channel(&self) -> &str {
        &self.keys[STREAMS]
    }

    /// The key of the store's state.
    pub(crate) fn state_key(&self) -> &str {
        &self.keys[0]
    }

    pub(crate) fn check_open(&self) -> Result<()> {
        if self.is_closed.load(Ordering::Acquire) { Err(StorageError::Closed) } else { Ok(()) }
    }

    /// Refuses calls from now on.
    pub(crate) fn close(&self) {
        self.is_closed.store(true, Ordering::Release);
        self.pool.close();
    }

    /// A connection that answered a moment ago.
    pub(crate) async fn get(&self, operation: &'static str) -> Result<Connection> {
        self.check_open()?;
        // A pool of dead connections checks one after the other; all of it is bounded here.
        match tokio::time::timeout(ACQUIRE_TIMEOUT, self.pool.get()).await {
            Ok(Ok(connection)) => Ok(connection),
            Ok(Err(PoolError::Closed)) => Err(StorageError::Closed),
            Ok(Err(PoolError::Backend(error))) => Err(errors::unreachable(operation, error)),
            Ok(Err(error)) => Err(errors::unreachable(operation, error)),
            Err(elapsed) => {
                // Those that did not answer, and those that were not asked yet.
                self.pool.retain(|_, _| false);
                Err(errors::unreachable(operation, elapsed))
            }
        }
    }

    /// Calls a function of the library.
    pub(crate) async fn call(
        &self,
        operation: &'static str,
        mut access: Access,
        args: Args,
    ) -> Result<Reply> {
        let command = self.command(operation, args);
        let mut connection = self.get(operation).await?;
        let mut answer = ask(&mut connection, &command).await;
        for _ in 0..LOADS_MAX {
            if !matches!(&answer, Err(error) if errors::classify(error) == Class::NoFunction) {
                break;
            }
            // It was refused as a whole, so that it can be repeated.
            if let Err(error) = self.load(&mut connection).await {
                // A library alone changes nothing.
                (answer, access) = (Err(error), Access::Reads);
                break;
            }
            answer = ask(&mut connection, &command).await;
        }
        let error = match answer {
            Ok(value) => return Ok(Reply(value)),
            Err(error) => error,
        };
        if matches!(errors::classify(&error), Class::Lost | Class::Refused) {
            // Not back to the pool: the next caller may find a better server at the address. What
            // else idles there leads to the same one.
            drop(Connection::take(connection));
            self.pool.retain(|_, _| false);
        }
        Err(errors::answer(operation, access, error))
    }

    fn command(&self, function: &str, args: Args) -> redis::Cmd {
        let mut command = redis::cmd("FCALL");
        command.arg(self.library.function(function)).arg(self.keys.len()).arg(&self.keys[..]);
        for arg in args {
            command.arg(&arg[..]);
        }
        command
    }

    /// Makes the library known to the server. Another one may have been faster.
    pub(crate) async fn load(
        &self,
        connection: &mut Connection,
    ) -> std::result::Result<(), RedisError> {
        let mut load = redis::cmd("FUNCTION");
        load.arg("LOAD").arg(self.library.text());
        match ask(connection, &load).await {
            Err(error) if error.detail().is_some_and(|it| it.contains("already exists")) => Ok(()),
            answer => answer.map(drop),
        }
    }
}

/// Asks the server. Its refusal is an error too.
pub(crate) async fn ask(
    connection: &mut Connection,
    command: &redis::Cmd,
) -> std::result::Result<Value, RedisError> {
    connection.req_packed_command(command).await.and_then(Value::extract_error)
}
