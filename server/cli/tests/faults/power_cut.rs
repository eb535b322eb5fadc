//! F5: the power fails under load. Only what is on the disk is left, and that is everything that
//! was acknowledged.

use crate::harness::{
    Verdict,
    calls::Tasks,
    crew::{Crew, Temper, Way},
    disk::Disk,
    recorded::Recorded,
    server::Server,
    until,
};
use rdq_compliance::{Random, history::History};
use rdq_spi::TaskStatus;
use rustix::process::Signal;
use std::{path::Path, time::Duration};

const CUTS: usize = 2;

pub(crate) async fn loses_nothing(mut random: Random) -> Verdict {
    let disk = Disk::mounted(96)?;
    let path = disk.path().join("rdq.db");
    let mut server = Server::on_file(&path).await;
    let history = History::new();
    let client = Recorded::new(Tasks::new(server.channel()), &history);
    let temper = Temper { fail: 5, release: 3, ..Temper::default() };
    let mut crew = Crew::new("power", temper, Duration::from_secs(1));
    for number in 0..4 {
        let seed = Random::seeded(random.next_u64());
        crew.producer(&client, &format!("p{number}"), seed);
    }
    for way in [Way::Unary, Way::Follow, Way::Work] {
        crew.worker(&client, way, Random::seeded(random.next_u64()));
    }

    let mut resolved = 0;
    for _ in 0..CUTS {
        crew.resolved_more_than(resolved).await;
        let pause = 1_200 + u64::try_from(random.below(800)).expect("small");
        tokio::time::sleep(Duration::from_millis(pause)).await;
        // First the server's, so that nothing is answered any more: the file system, when it is shut
        // down, lets a flush that is under way succeed although its data is lost.
        server.freeze().await;
        disk.cut_power()?;
        server.kill();
        resolved = crew.resolved();
        until("the disk is let go", async || disk.unmount().ok()).await;
        disk.mount()?;
        server.restart().await;
    }
    let tally = crew.drain(&client).await;

    eprintln!("{tally:?}");
    assert!(tally.errors > 0, "the cuts were not noticed");
    let counts = client.judge(&["power"]).await;
    assert_eq!(counts.get(&TaskStatus::Succeeded), Some(&tally.admitted), "{counts:?}");
    server.signal(Signal::TERM);
    server.ended().await;
    is_sound(&path);
    Ok(())
}

/// The database has no damage that SQLite can find. Its server must have ended.
pub(super) fn is_sound(path: &Path) {
    let database = rusqlite::Connection::open(path).expect("the database opens");
    let answer: String = database
        .query_row("PRAGMA integrity_check", [], |row| row.get(0))
        .expect("the database can be read");
    assert_eq!(answer, "ok");
}
