//! What is asked of a server before it is used: its version, its role, and what it does with data
//! when its memory is full or it is restarted.

use crate::{
    config::{OpenError, RedisConfig},
    connections::{Connections, ask},
};
use rdq_spi::{Durability, Migrated, StorageError};
use redis::{FromRedisValue as _, RedisError, Value};

/// The layout of the data that this build writes.
const SCHEMA: u8 = 2;

/// What was found at the start.
pub(crate) struct Found {
    /// What an acknowledged write survives.
    pub(crate) durability: Durability,
    /// The layout of the data, and that which is written from now on.
    pub(crate) layout: Migrated,
}

/// Connects, checks, loads the library, and says what it found.
pub(crate) async fn open(config: &RedisConfig) -> Result<(Connections, Found), OpenError> {
    let connections = Connections::new(config).map_err(OpenError::Address)?;
    let mut connection = connections.get("open").await.map_err(of_connecting)?;
    let info = ask(&mut connection, &redis::cmd("INFO")).await.map_err(OpenError::Server)?;
    let info = String::from_redis_value(info).map_err(|error| OpenError::Server(error.into()))?;
    check(&info)?;
    let state = connections.state_key();
    let found = ask(&mut connection, redis::cmd("GETRANGE").arg(state).arg(0).arg(0)).await;
    let found = match found.map_err(OpenError::Server)? {
        Value::BulkString(version) => version.first().copied(),
        _ => None,
    };
    if let Some(found) = found.filter(|&found| found > SCHEMA) {
        return Err(OpenError::NewerSchema { found, known: SCHEMA });
    }
    if let Some(found) = found.filter(|&found| found < SCHEMA) {
        let keys = format!("{}*", state.trim_end_matches("state"));
        return Err(OpenError::OlderSchema { found, known: SCHEMA, keys });
    }
    let layout = Migrated { from: found.map(u32::from), to: SCHEMA.into() };
    // Many services bar CONFIG; then the weaker promise is made.
    let fsync = ask(&mut connection, redis::cmd("CONFIG").arg("GET").arg("appendfsync")).await;
    let fsync = fsync.ok().and_then(|it| Vec::<String>::from_redis_value(it).ok());
    let durability = durability(&info, fsync.as_deref().unwrap_or_default());
    if durability == Durability::None {
        tracing::warn!(
            "the Redis server has no append-only file: a restart loses tasks; set `appendonly yes`"
        );
    }
    connections.load(&mut connection).await.map_err(OpenError::Server)?;
    drop(connection);
    Ok((connections, Found { durability, layout }))
}

fn of_connecting(error: StorageError) -> OpenError {
    match error {
        StorageError::Unavailable { source, .. } => match source.downcast::<RedisError>() {
            Ok(error) => OpenError::Server(*error),
            Err(_) => OpenError::NoAnswer,
        },
        _ => OpenError::NoAnswer,
    }
}

fn field<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
}

fn check(info: &str) -> Result<(), OpenError> {
    let version = field(info, "redis_version").unwrap_or("unknown");
    let major = version.split('.').next().and_then(|major| major.parse::<u32>().ok());
    if major.is_none_or(|major| major < 7) {
        return Err(OpenError::Version(version.to_owned()));
    }
    let policy = field(info, "maxmemory_policy").unwrap_or("noeviction");
    if policy != "noeviction" {
        return Err(OpenError::Evicts(policy.to_owned()));
    }
    match field(info, "role") {
        Some("slave") => Err(OpenError::Replica),
        _ => Ok(()),
    }
}

fn durability(info: &str, fsync: &[String]) -> Durability {
    match (field(info, "aof_enabled"), fsync) {
        (Some("1"), [_, always]) if always == "always" => Durability::PowerCut,
        (Some("1"), _) => Durability::Process,
        _ => Durability::None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_may_lose_tasks_is_refused_and_the_setting_named() {
        let info = |version, policy, role| {
            format!(
                "# Server\r\nredis_version:{version}\r\nmaxmemory_policy:{policy}\r\nrole:{role}\r\n"
            )
        };
        assert!(check(&info("7.0.15", "noeviction", "master")).is_ok());
        for (info, expected) in [
            (info("7.0.15", "allkeys-lru", "master"), "set `maxmemory-policy noeviction`"),
            (info("7.0.15", "volatile-ttl", "master"), "`volatile-ttl`"),
            (info("6.2.7", "noeviction", "master"), "version 6.2.7"),
            (info("7.2.4", "noeviction", "slave"), "is a replica"),
        ] {
            let error = check(&info).map_err(|error| error.to_string());
            assert!(error.as_ref().is_err_and(|it| it.contains(expected)), "{error:?}");
        }
    }

    #[test]
    fn the_append_only_file_decides_what_is_promised() {
        let fsync = |value: &str| ["appendfsync".to_owned(), value.to_owned()];
        for (info, value, expected) in [
            ("aof_enabled:1\r\n", "always", Durability::PowerCut),
            ("aof_enabled:1\r\n", "everysec", Durability::Process),
            ("aof_enabled:0\r\n", "always", Durability::None),
        ] {
            assert_eq!(durability(info, &fsync(value)), expected);
        }
        assert_eq!(durability("aof_enabled:1\r\n", &[]), Durability::Process);
    }
}
