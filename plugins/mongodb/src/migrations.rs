//! The database as this version needs it: made where it is missing, whoever comes first, and refused
//! where a newer version has been.

use crate::{
    config::OpenError,
    coordination::{self, COLLECTIONS},
    database::Db,
    document::{TaskDocument, instant},
    notifier,
    token::StoreId,
};
use mongodb::{
    IndexModel,
    bson::{Binary, Bson, Document, doc, spec::BinarySubtype},
    options::{IndexOptions, ReturnDocument},
};
use rdq_spi::Migrated;
use std::{
    hash::{BuildHasher as _, Hasher as _, RandomState},
    time::Duration,
};

/// The version of the schema that this code knows.
const VERSION: i32 = 2;
/// How long a document that told somebody of something is kept.
const TOLD_KEPT: Duration = Duration::from_secs(60);
/// The server's word for a collection that is there: `NamespaceExists`.
const EXISTS: i32 = 48;

/// Makes what is missing; answers which store this is, and what became of its schema.
pub(crate) async fn migrate(db: &Db) -> Result<(StoreId, Migrated), OpenError> {
    let store = db.beside("store");
    // Random; part of every claim token, so that a token of another store is refused.
    let id = RandomState::new().build_hasher().finish().to_be_bytes().to_vec();
    let id = Binary { subtype: BinarySubtype::Generic, bytes: id };
    let is_new =
        insert_once(db, doc! { "_id": "store", "version": VERSION, "store_id": id }).await?;
    insert_once(db, doc! { "_id": "numbers" }).await?;
    let stored = store.find_one(doc! { "_id": "store" }).await?;
    let stored = stored.ok_or(OpenError::Corrupt { what: "the document of the store" })?;
    let found = stored.get_i32("version").map_err(|_| OpenError::Corrupt { what: "version" })?;
    if found > VERSION {
        return Err(OpenError::NewerSchema { found, known: VERSION });
    }
    let numbers = store.find_one(doc! { "_id": "numbers" }).await?;
    if let Some(Bson::DateTime(now)) = numbers.as_ref().and_then(|numbers| numbers.get("now")) {
        db.clock.advance(instant(*now));
    }
    let tasks = db.database.collection::<TaskDocument>("tasks");
    tasks.create_indexes(indexes()).await?;
    db.database.collection::<Document>(notifier::COLLECTION).create_index(told()).await?;
    for name in COLLECTIONS {
        make(db, name).await?;
    }
    let mutations = db.database.collection::<Document>(coordination::MUTATIONS);
    mutations.create_index(coordination::age()).await?;
    if found < VERSION {
        // Numbers are as they were, and from now on far above them: an older version's would not be.
        let older = doc! { "_id": "store", "version": { "$lt": VERSION } };
        store.update_one(older, doc! { "$set": { "version": VERSION } }).await?;
    }
    let migrated = Migrated {
        from: if is_new { None } else { u32::try_from(found).ok() },
        to: VERSION.unsigned_abs(),
    };
    match stored.get("store_id") {
        Some(Bson::Binary(id)) => {
            let id = id.bytes.as_slice().try_into();
            let id = id.map_err(|_| OpenError::Corrupt { what: "store_id" })?;
            Ok((StoreId(id), migrated))
        }
        _ => Err(OpenError::Corrupt { what: "store_id" }),
    }
}

/// Makes a collection unless it is there.
async fn make(db: &Db, name: &str) -> Result<(), OpenError> {
    use mongodb::error::ErrorKind;
    match db.database.create_collection(name).await {
        Err(error) if !matches!(error.kind.as_ref(), ErrorKind::Command(error) if error.code == EXISTS) => {
            Err(error.into())
        }
        _ => Ok(()),
    }
}

/// Counts a handle among those of the store.
pub(crate) async fn enter(db: &Db) -> Result<(), OpenError> {
    let one_more = doc! { "$inc": { "handles": 1_i64 } };
    let store = db.beside("store");
    let counted = store.find_one_and_update(doc! { "_id": "numbers" }, one_more);
    let numbers = counted.return_document(ReturnDocument::After).await?;
    let count = numbers.and_then(|numbers| numbers.get_i64("handles").ok());
    db.numbering.open(count.ok_or(OpenError::Corrupt { what: "the document of numbers" })?);
    Ok(())
}

/// Says whether it was not there yet.
async fn insert_once(db: &Db, document: Document) -> Result<bool, OpenError> {
    match db.beside("store").insert_one(document).await {
        Ok(_) => Ok(true),
        Err(error) if is_taken(&error) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

fn is_taken(error: &mongodb::error::Error) -> bool {
    use mongodb::error::{ErrorKind, WriteFailure};
    matches!(error.kind.as_ref(), ErrorKind::Write(WriteFailure::WriteError(error))
        if error.code == crate::errors::DUPLICATE_KEY)
}

/// What was told is removed after a while. Those who are to hear it have heard it in the log.
fn told() -> IndexModel {
    let options =
        IndexOptions::builder().name("told".to_owned()).sparse(true).expire_after(TOLD_KEPT);
    IndexModel::builder().keys(doc! { "told_at": 1 }).options(options.build()).build()
}

/// No finished task is in the indexes of those that live, and the other way around.
fn indexes() -> Vec<IndexModel> {
    let live = doc! { "live": true };
    [
        // What is due, in the order of claims; counts of what lives.
        (
            "claims",
            doc! { "queue": 1, "live": 1, "rank": 1, "at": 1, "seq": 1, "status": 1 },
            Some(live.clone()),
        ),
        // Lists by admission, and the names of queues.
        ("admissions", doc! { "queue": 1, "seq": 1 }, None),
        // Dead letters by death; counts of what is finished.
        (
            "ends",
            doc! { "queue": 1, "live": 1, "status": 1, "ended": 1 },
            Some(doc! { "live": false }),
        ),
        // Unfinished tasks that expire.
        (
            "expiry",
            doc! { "queue": 1, "live": 1, "expires_at": 1 },
            Some(doc! { "live": true, "expires_at": { "$exists": true } }),
        ),
        // Finished tasks that their queue's retention removes, and dead letters with their own.
        (
            "kept",
            doc! { "queue": 1, "kept": 1, "finished_at": 1 },
            Some(doc! { "kept": { "$exists": true } }),
        ),
        (
            "purge",
            doc! { "queue": 1, "purge_at": 1 },
            Some(doc! { "purge_at": { "$exists": true } }),
        ),
    ]
    .into_iter()
    .map(|(name, keys, partial)| {
        let options =
            IndexOptions::builder().name(name.to_owned()).partial_filter_expression(partial);
        IndexModel::builder().keys(keys).options(options.build()).build()
    })
    .collect()
}
