//! Redis, and the plugin's functions called over its driver alone: one connection for each caller,
//! and nothing between.

use super::{Backend, Started, WireGoals};
use crate::{
    hand::{
        BYTES_MAX, ENVELOPE, Failure, HANDLER, Hand, Held, LEASE, QUEUE, WORKER, id_of, number_of,
    },
    load::Hands,
};
use async_trait::async_trait;
use bytes::Bytes;
use rdq_test_servers::redis::{Flavor, RedisServer};
use redis::{AsyncConnectionConfig, Client, Cmd, Value, aio::MultiplexedConnection};
use std::{ops::Range, time::Duration};

const KEYS: [&str; 10] = [
    "state", "tasks", "bodies", "history", "index", "runs", "tallies", "served", "queues",
    "secrets",
];
const NONCE: [u8; 8] = *b"contends";
/// Where a task's record has its token: a generation, and the nonce.
const TOKEN: Range<usize> = 18..34;
/// How long the answer to one completion is.
const ANSWER_LEN: usize = 10;

/// When a write is on disk.
#[derive(Debug, Clone, Copy)]
pub(super) enum Aof {
    No,
    EverySecond,
    Always,
}

struct Redis {
    server: RedisServer,
    aof: Aof,
}

/// Starts one.
pub(super) async fn start(aof: Aof) -> Started {
    if let Some(missing) = Flavor::Redis.missing_locally() {
        return Ok(Err(missing));
    }
    let settings: &[&str] = match aof {
        Aof::No => &["--appendonly", "no"],
        Aof::EverySecond => &["--appendfsync", "everysec"],
        Aof::Always => &["--appendfsync", "always"],
    };
    let server = RedisServer::start_with(Flavor::Redis, settings).await?;
    Ok(Ok(Box::new(Redis { server, aof })))
}

#[async_trait]
impl Backend for Redis {
    fn name(&self) -> &'static str {
        match self.aof {
            Aof::No => "Redis, no AOF",
            Aof::EverySecond => "Redis, everysec",
            Aof::Always => "Redis, always",
        }
    }

    fn url(&self, store: &str) -> String {
        format!("{}?namespace={store}", self.server.url())
    }

    fn supply(&self) -> u64 {
        150_000
    }

    fn wire_goals(&self) -> Option<WireGoals> {
        let lives = match self.aof {
            Aof::No => 2.0 * 20_900.0,
            Aof::EverySecond => 2.0 * 15_800.0,
            Aof::Always => 2.0 * 15_200.0,
        };
        Some(WireGoals { lives, pick_up_us: None })
    }

    async fn bare(&self, store: &str, count: usize) -> Result<Hands, Failure> {
        let client = Client::open(self.server.url())?;
        let config =
            AsyncConnectionConfig::new().set_response_timeout(Some(Duration::from_secs(30)));
        let connect = || client.get_multiplexed_async_connection_with_config(&config);
        let list: Vec<Vec<Value>> =
            redis::cmd("FUNCTION").arg("LIST").query_async(&mut connect().await?).await?;
        let library = library(&list).ok_or("the functions are not loaded")?;
        let mut hands = Hands::new();
        for _ in 0..count {
            hands.push(Box::new(Bare {
                db: connect().await?,
                library: library.clone(),
                keys: KEYS.map(|key| format!("rdq:{{{store}}}:{key}")),
            }));
        }
        Ok(hands)
    }
}

/// The name of rdq's library.
fn library(list: &[Vec<Value>]) -> Option<String> {
    let texts = list.iter().flatten().filter_map(|value| match value {
        Value::BulkString(text) => String::from_utf8(text.clone()).ok(),
        Value::SimpleString(text) => Some(text.clone()),
        _ => None,
    });
    texts.into_iter().find(|text| text.starts_with("rdq_"))
}

struct Bare {
    db: MultiplexedConnection,
    library: String,
    keys: [String; KEYS.len()],
}

impl Bare {
    fn call(&self, function: &str) -> Cmd {
        let mut call = redis::cmd("FCALL");
        call.arg(format!("{}_{function}", self.library)).arg(self.keys.len()).arg(&self.keys[..]);
        call
    }
}

#[async_trait]
impl Hand for Bare {
    async fn admit(&mut self, numbers: Range<u64>) -> Result<(), Failure> {
        let mut call = self.call("enqueue");
        // One stretch of plain tasks of priority 0, each in three arguments.
        let (count, mut head) = (usize::try_from(numbers.end - numbers.start)?, Packed::default());
        head.bytes(&[0]).len32(3 * count).bytes(&[0x7f, 0xff, 0xff, 0xff]).name(QUEUE);
        call.arg(head.0);
        for number in numbers {
            // No flags, no expiry, no lease or retention of its own.
            let mut tail = Packed::default();
            tail.bytes(&[0]).len32(ENVELOPE.len()).name(QUEUE);
            tail.bytes(&[0; 8]).bytes(&[0xff; 16]).name(HANDLER);
            call.arg(id_of(number)).arg(tail.0).arg([&[1_u8, 0][..], &ENVELOPE[..]].concat());
        }
        let answers: Vec<u8> = call.query_async(&mut self.db).await?;
        let all_new = answers.iter().all(|answer| *answer == 1);
        if all_new { Ok(()) } else { Err("a task was there already".into()) }
    }

    async fn claim(&mut self, limit: u32) -> Result<Vec<Held>, Failure> {
        let lease = i64::try_from(LEASE.as_millis())?.to_be_bytes();
        let (mut claim, mut from) = (Packed::default(), Packed::default());
        claim.bytes(&limit.to_be_bytes()).bytes(&u64::from(BYTES_MAX).to_be_bytes());
        claim.bytes(&[0xff; 8]).bytes(&NONCE).len32(1).name(WORKER);
        from.bytes(&lease).bytes(&lease).name(QUEUE);
        let mut call = self.call("claim_due");
        call.arg(claim.0).arg(from.0);
        let answer: Value = call.query_async(&mut self.db).await?;
        held(answer).ok_or_else(|| "the answer to a claim".into())
    }

    async fn complete(&mut self, held: Vec<Held>) -> Result<(), Failure> {
        let mut call = self.call("resolve");
        for held in &held {
            let mut end = Packed::default();
            // Complete: succeed, and forget.
            end.bytes(&[1, 0, 2]).bytes(&held.proof).name(&id_of(held.number));
            call.arg(end.0);
        }
        let answers: Vec<u8> = call.query_async(&mut self.db).await?;
        let all_done = answers.chunks(ANSWER_LEN).all(|answer| answer.first() == Some(&0));
        if all_done { Ok(()) } else { Err("a claim was not held".into()) }
    }
}

/// Id, record and body of each.
fn held(answer: Value) -> Option<Vec<Held>> {
    let list = |value| if let Value::Array(list) = value { Some(list) } else { None };
    let mut parts = list(list(list(answer)?.pop()?)?.pop()?)?.into_iter();
    let mut held = Vec::with_capacity(parts.len() / 3);
    while let Some(id) = parts.next() {
        let (Value::BulkString(id), Value::BulkString(record)) = (id, parts.next()?) else {
            return None;
        };
        parts.next()?;
        let number = number_of(std::str::from_utf8(&id).ok()?).ok()?;
        held.push(Held { number, proof: Bytes::copy_from_slice(record.get(TOKEN)?) });
    }
    Some(held)
}

/// Arguments as the functions unpack them, big end first.
#[derive(Default)]
struct Packed(Vec<u8>);

impl Packed {
    fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        self.0.extend(bytes);
        self
    }

    fn len32(&mut self, len: usize) -> &mut Self {
        self.bytes(&u32::try_from(len).unwrap_or(u32::MAX).to_be_bytes())
    }

    fn name(&mut self, name: &str) -> &mut Self {
        let len = u8::try_from(name.len()).unwrap_or(u8::MAX);
        self.bytes(&[len]).bytes(name.as_bytes())
    }
}
