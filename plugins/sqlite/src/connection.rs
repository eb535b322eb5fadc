//! Opens connections and checks that each got what durability rests on. The file is never opened
//! but through the library: closing a descriptor of one's own would drop all its locks.

use crate::{clock::Deadline, config::OpenError, errors::Sql, migrations};
use rusqlite::{Connection, ErrorCode, OpenFlags, config::DbConfig, types::FromSql};
use std::{
    path::{Path, PathBuf},
    time::Duration,
};

/// The first version without the bug that could corrupt a log which is reset while it is read.
const LIBRARY_VERSION_MIN: i32 = 3_051_003;
/// How long a statement waits for another process's write.
pub(crate) const BUSY_TIMEOUT: Duration = Duration::from_secs(5);
/// The log file shrinks to this when it is begun anew.
const LOG_BYTES_KEPT: i64 = 64 << 20;
/// Pages that the writer keeps in memory, in KiB: the indexes' inner pages of a large backlog. Not
/// more, since a commit after a page was split looks at all of them.
const WRITER_CACHE_KIB: i64 = 8 << 10;
const READER_CACHE_KIB: i64 = 4 << 10;

/// A path that the library takes as it is: neither a URI nor a name of its own such as `:memory:`.
pub(crate) fn plain_path(path: &Path) -> Result<PathBuf, OpenError> {
    let cannot = |source| OpenError::Path { path: path.to_owned(), source };
    let absolute = std::path::absolute(path).map_err(cannot)?;
    let directory = absolute.parent().unwrap_or(&absolute);
    let found = std::fs::metadata(directory).map_err(cannot)?;
    if !found.is_dir() || absolute.is_dir() {
        return Err(cannot(std::io::ErrorKind::NotADirectory.into()));
    }
    Ok(absolute)
}

/// Refuses a library that could corrupt the file.
pub(crate) fn check_library() -> Result<(), OpenError> {
    if rusqlite::version_number() < LIBRARY_VERSION_MIN {
        return Err(OpenError::Library { version: rusqlite::version() });
    }
    Ok(())
}

/// A connection that writes, on a file that may be new. A file that is not ours is left alone.
pub(crate) fn open_writer(path: &Path) -> Result<Connection, OpenError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
        | OpenFlags::SQLITE_OPEN_CREATE
        | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    open_writer_with(path, flags)
}

/// A connection that writes, in place of one that broke. The file is there, or its disk is not: a
/// new one in its place would hide all tasks.
pub(crate) fn reopen_writer(path: &Path) -> Result<Connection, OpenError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    open_writer_with(path, flags)
}

fn open_writer_with(path: &Path, flags: OpenFlags) -> Result<Connection, OpenError> {
    let db = open(path, flags)?;
    migrations::check(&db)?;
    use_write_ahead_log(&db)?;
    set(&db, "synchronous", "FULL", 2_i64)?;
    set(&db, "foreign_keys", "ON", 1_i64)?;
    // Checkpoints are ours: off the commits' path.
    set(&db, "wal_autocheckpoint", "0", 0_i64)?;
    set(&db, "journal_size_limit", &LOG_BYTES_KEPT.to_string(), LOG_BYTES_KEPT)?;
    set(&db, "cache_size", &format!("-{WRITER_CACHE_KIB}"), -WRITER_CACHE_KIB)?;
    Ok(db)
}

/// A connection for checkpoints alone. It gives way at once to whoever writes.
pub(crate) fn open_checkpointer(path: &Path) -> Result<Connection, OpenError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let db = open(path, flags)?;
    set(&db, "synchronous", "FULL", 2_i64)?;
    set(&db, "wal_autocheckpoint", "0", 0_i64)?;
    db.busy_timeout(Duration::ZERO)?;
    Ok(db)
}

/// A connection that only reads.
pub(crate) fn open_reader(path: &Path) -> Result<Connection, OpenError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let db = open(path, flags)?;
    set(&db, "query_only", "ON", 1_i64)?;
    // All that readers run: see `reads`.
    db.set_prepared_statement_cache_capacity(32);
    set(&db, "cache_size", &format!("-{READER_CACHE_KIB}"), -READER_CACHE_KIB)?;
    Ok(db)
}

fn open(path: &Path, flags: OpenFlags) -> Result<Connection, OpenError> {
    let db = Connection::open_with_flags(path, flags)?;
    db.busy_timeout(BUSY_TIMEOUT)?;
    // One plan for each statement, whatever is bound: else some are compiled again for each call.
    db.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    set(&db, "temp_store", "MEMORY", 2_i64)?;
    set(&db, "mmap_size", "0", 0_i64)?;
    Ok(db)
}

/// Several processes that open a new file at once get in each other's way here, and the library
/// answers that without waiting.
fn use_write_ahead_log(db: &Connection) -> Result<(), OpenError> {
    let deadline = Deadline::after(BUSY_TIMEOUT);
    loop {
        match set(db, "journal_mode", "WAL", "wal".to_owned()) {
            Err(OpenError::Sqlite(error))
                if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy)
                    && !deadline.has_passed() =>
            {
                std::thread::sleep(Duration::from_millis(5));
            }
            done => return done,
        }
    }
}

/// Sets a pragma and reads it back: one that does not hold is answered, not refused.
fn set<T: FromSql + PartialEq>(
    db: &Connection,
    pragma: &'static str,
    value: &str,
    expected: T,
) -> Result<(), OpenError> {
    let answer = |sql: &str| -> Sql<Option<T>> {
        let mut statement = db.prepare(sql)?;
        let mut rows = statement.query([])?;
        rows.next()?.map(|row| row.get(0)).transpose()
    };
    answer(&format!("PRAGMA {pragma} = {value};"))?;
    if answer(&format!("PRAGMA {pragma};"))? == Some(expected) {
        Ok(())
    } else {
        Err(OpenError::Pragma { pragma, value: value.to_owned() })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_never_a_uri_nor_a_database_in_memory() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["file:x.db?mode=memory", ":memory:", "a b%20.db"] {
            let path = plain_path(&dir.path().join(name)).unwrap();
            open_writer(&path).unwrap();
            assert!(path.is_file(), "{name}");
        }
        assert!(plain_path(Path::new(":memory:")).unwrap().is_absolute());
        assert!(plain_path(Path::new("")).is_err());
        assert!(plain_path(&dir.path().join("missing/x.db")).is_err());
        assert!(plain_path(dir.path()).is_err());
    }
}
