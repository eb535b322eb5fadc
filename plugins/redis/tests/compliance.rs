//! The compliance kit on a hand-started server.
use rdq_compliance::Fixture;
use rdq_redis::{RedisConfig, RedisStorage};
use rdq_spi::{Capabilities, Durability, Storage};
use std::sync::{Arc, atomic::{AtomicU64, Ordering}};
static N: AtomicU64 = AtomicU64::new(0);
struct F(String);
impl Fixture for F {
    const CAPABILITIES: Capabilities = Capabilities { durability: Durability::PowerCut, notify: true, filter_pushdown: true, batch_enqueue: true };
    async fn create() -> Self {
        let n = N.fetch_add(1, Ordering::Relaxed);
        Self(format!("{}?namespace=t-{}-{n}", std::env::var("REDIS_URL").unwrap(), std::process::id()))
    }
    async fn open(&self) -> Arc<dyn Storage> {
        Arc::new(RedisStorage::connect(RedisConfig::from_url(&self.0).unwrap()).await.unwrap())
    }
}
fn main() { rdq_compliance::main::<F>() }
