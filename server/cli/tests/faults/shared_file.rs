//! F19: two servers on one SQLite file, and a reader that does not end.

use super::power_cut::is_sound;
use crate::harness::{
    Verdict, awaited,
    calls::{self, Tasks},
    crew::{Crew, Temper, Way},
    recorded::Recorded,
    server::Server,
};
use rdq_compliance::{Random, history::History};
use rdq_proto::{time, v1};
use rdq_spi::TaskStatus;
use rustix::process::Signal;
use std::{fs, path::Path, time::Duration};

const LEASE: Duration = Duration::from_secs(1);
/// A lease that outlasts a worker's one call, on a busy machine too.
const LONG_LEASE: Duration = Duration::from_secs(60);

pub(crate) async fn serves_two(mut random: Random) -> Verdict {
    let folder = tempfile::tempdir().expect("a directory");
    let path = folder.path().join("rdq.db");
    let first = Server::on_file(&path).await;
    let mut second = Server::on_file(&path).await;
    let history = History::new();
    let one = Recorded::new(Tasks::new(first.channel()), &history);
    let two = Recorded::new(Tasks::new(second.channel()), &history);
    wakes_across_processes(&one, &two, "there").await;
    wakes_across_processes(&two, &one, "back").await;

    let temper = Temper { fail: 5, release: 3, extend: 10, abandon: 2, ..Temper::default() };
    let mut crew = Crew::new("shared", temper, LEASE);
    for (number, client) in [&one, &two].into_iter().enumerate() {
        let mut seed = || Random::seeded(random.next_u64());
        crew.producer(client, &format!("p{number}"), seed());
        for way in [Way::Unary, Way::Follow, Way::Work] {
            crew.worker(client, way, seed());
        }
    }
    for _ in 0..3 {
        large_batch(&one, &mut random).await;
        let before = crew.resolved();
        crew.resolved_more_than(before).await;
        let pause = 300 + u64::try_from(random.below(600)).expect("small");
        tokio::time::sleep(Duration::from_millis(pause)).await;
        second.kill();
        // The other goes on, beside a half-done transaction or checkpoint.
        one.enqueue(&lasting(&format!("alone-{before}"), "x")).await.expect("it does");
        second.restart().await;
    }
    let tally = crew.drain(&one).await;

    eprintln!("{tally:?}");
    assert!(tally.errors > 0, "the kills were not noticed");
    let counts = two.judge(&["shared", "wake"]).await;
    assert_eq!(counts.keys().collect::<Vec<_>>(), [&TaskStatus::Succeeded], "{counts:?}");
    for mut server in [first, second] {
        server.signal(Signal::TERM);
        server.ended().await;
    }
    is_sound(&path);
    Ok(())
}

/// A subscription at one server gets what the other admits.
async fn wakes_across_processes(producer: &Recorded, worker: &Recorded, name: &str) {
    let mut stream =
        worker.follow(calls::follow("wake", 1, LONG_LEASE)).await.expect("a subscription");
    assert_eq!(stream.next().await.expect("the first message").map(|claims| claims.len()), Some(0));
    for number in 0..5 {
        let task = calls::task(&format!("{name}-{number}"), "wake", "x");
        producer.enqueue(&task).await.expect("admitted");
        let news = awaited("the other server's worker is woken", stream.next()).await;
        for held in news.expect("the stream goes on").expect("it does") {
            worker.complete(&held).await.expect("completed");
        }
    }
}

/// A task that ends well however often its worker fails, and its lease lapses.
fn lasting(id: &str, payload: impl Into<bytes::Bytes>) -> v1::Task {
    let mut task = calls::task(id, "shared", payload);
    task.max_attempts = Some(200);
    task.initial_backoff = Some(time::duration(Duration::from_millis(50)));
    task
}

/// Enough to have the log moved into the file.
async fn large_batch(client: &Recorded, random: &mut Random) {
    let batch: Vec<_> = (0..700)
        .map(|_| {
            let id = format!("large-{:016x}", random.next_u64());
            lasting(&id, random.bytes(8_000))
        })
        .collect();
    client.enqueue_batch(&batch).await.expect("admitted");
}

pub(crate) async fn bears_a_long_reader(mut random: Random) -> Verdict {
    const READS_FOR: Duration = Duration::from_secs(4);
    // A gigabyte: many times what the log may reach before it is begun anew.
    const BATCHES_MAX: usize = 200;
    let folder = tempfile::tempdir().expect("a directory");
    let path = folder.path().join("rdq.db");
    let server = Server::on_file(&path).await;
    let history = History::new();
    let client = Recorded::new(Tasks::new(server.channel()), &history);
    let mut crew = Crew::new("shared", Temper::default(), Duration::from_secs(5));
    crew.producer(&client, "p", Random::seeded(random.next_u64()));
    crew.worker(&client, Way::Work, Random::seeded(random.next_u64()));
    large_batch(&client, &mut random).await;

    let mut database = rusqlite::Connection::open(&path).expect("the database opens");
    let reading = database.transaction().expect("a transaction");
    let tables: i64 = reading
        .query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))
        .expect("a snapshot");
    assert!(tables > 0);
    let resolved = crew.resolved();
    for _ in 0..3 {
        large_batch(&client, &mut random).await;
        tokio::time::sleep(READS_FOR / 3).await;
    }
    let held_log = log_bytes(&path);
    // The reader holds up no writer.
    crew.resolved_more_than(resolved).await;
    assert!(held_log > 12 << 20, "the reader did not hold the log: {held_log} bytes");
    reading.finish().expect("the transaction ends");
    drop(database);

    // The log begins anew now, sooner or later: it is moved beside the writes.
    let mut log = held_log;
    for batch in 0.. {
        let before = log;
        large_batch(&client, &mut random).await;
        log = log_bytes(&path);
        if log <= before {
            eprintln!(
                "log: {held_log} bytes under the reader, {log} after it, and {batch} batches"
            );
            break;
        }
        assert!(batch < BATCHES_MAX, "the log grows on: {held_log}, then {log} bytes");
    }
    crew.drain(&client).await;
    let counts = client.judge(&["shared"]).await;
    assert_eq!(counts.keys().collect::<Vec<_>>(), [&TaskStatus::Succeeded], "{counts:?}");
    Ok(())
}

fn log_bytes(path: &Path) -> u64 {
    fs::metadata(path.with_extension("db-wal")).map_or(0, |it| it.len())
}
