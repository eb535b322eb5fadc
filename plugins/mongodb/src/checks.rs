//! What a server must be before it is trusted with tasks, and what it is said to be.

use crate::{config::OpenError, database::Db};
use mongodb::bson::doc;

/// The oldest major version that has what the commands need.
const VERSION_MIN: u32 = 5;

/// How the server stands to others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Topology {
    ReplicaSet,
    /// Nobody else has its data, nobody is told of changes, and there are no transactions.
    Standalone,
}

/// Refuses what cannot keep tasks, and warns of what keeps them less well.
pub(crate) async fn check_server(db: &Db) -> Result<Topology, OpenError> {
    let build = db.database.run_command(doc! { "buildInfo": 1 }).await?;
    let version = build.get_str("version").unwrap_or_default();
    let major = version.split('.').next().and_then(|major| major.parse::<u32>().ok());
    if major.is_some_and(|major| major < VERSION_MIN) {
        return Err(OpenError::Version { found: version.to_owned() });
    }
    let hello = db.database.run_command(doc! { "hello": 1 }).await?;
    if hello.get_str("msg").is_ok_and(|msg| msg == "isdbgrid") {
        return Err(OpenError::Sharded);
    }
    if hello.contains_key("setName") {
        return Ok(Topology::ReplicaSet);
    }
    tracing::warn!(
        "the mongod is not a member of a replica set: it serves tasks, journaled, but a disk that \
         is lost loses them, and due tasks of other servers are found by polling"
    );
    Ok(Topology::Standalone)
}
