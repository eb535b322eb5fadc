//! Records: values under keys, by compare-and-set.

use crate::{Result, error::named};
use bytes::Bytes;
use rdq_engine::{Engine, EngineError};
use rdq_spi::{CompareAndSet, Record, RecordKey, RecordName, RecordSpace};

pub(crate) async fn get(engine: &Engine, key: &str) -> Result<Option<Record>> {
    match engine.get_record(named("key", RecordName::new(key))?).await {
        Ok(record) => Ok(Some(record)),
        Err(EngineError::RecordNotFound { .. }) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

pub(crate) fn changed(
    key: &str,
    value: Option<Bytes>,
    expected_revision: i64,
) -> Result<CompareAndSet> {
    let name = named("key", RecordName::new(key))?;
    let key = RecordKey { space: RecordSpace::Caller, name };
    Ok(CompareAndSet { key, value, expected_revision })
}

pub(crate) async fn change(
    engine: &Engine,
    key: &str,
    value: Option<Bytes>,
    expected_revision: i64,
) -> Result<i64> {
    Ok(engine.change_record(changed(key, value, expected_revision)?).await?)
}
