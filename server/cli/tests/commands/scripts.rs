//! What scripts rely on: JSON that parses, exit codes that mean one thing, errors with reasons.

use super::shell::Shell;
use serde_json::Value;

#[tokio::test]
async fn every_command_prints_json_for_programs() {
    let shell = Shell::open().await;
    let created = shell.json(&["enqueue", "q", "h", "--id", "a"]);
    assert_eq!(created, serde_json::json!({ "id": "a", "created": true, "status": "PENDING" }));
    let binary = shell.dir.path().join("binary");
    std::fs::write(&binary, [0xff, 0x00]).expect("a file");
    let from_file = format!("@{}", binary.display());
    shell.json(&["enqueue", "q", "h", "--id", "b", "--delay", "1h", "--payload", &from_file]);

    let listed = shell.json(&["list", "q"]);
    let ids: Vec<_> = listed["tasks"].as_array().expect("tasks").iter().map(|t| &t["id"]).collect();
    assert_eq!(ids, ["b", "a"], "newest first");
    assert_eq!(listed["next_page_token"], "");
    let task = &shell.json(&["get", "b"])["task"];
    assert_eq!(task["payload_base64"], "/wA=");
    assert!(task["next_attempt_at"].as_str().expect("text").ends_with('Z'), "{task}");

    let stats = &shell.json(&["stats", "q"])["queues"][0];
    assert_eq!((&stats["ready"], &stats["delayed"]), (&Value::from(1), &Value::from(1)));
    let watched =
        shell.ok(&["watch", "q", "--count", "2", "--interval", "100ms", "--output", "json"]);
    let lines: Vec<Value> =
        watched.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(lines.len(), 2);
    assert_eq!(lines[0]["queues"][0]["pending"], 2);

    let claimed = &shell.json(&["claim", "q", "--lease", "2m"])["tasks"][0];
    assert_eq!(claimed["task"]["id"], "a");
    let token = claimed["claim_token"].as_str().expect("text");
    let failed = shell.json(&["fail", "a", token, "--permanent", "--error-type", "bad"]);
    assert_eq!(failed, serde_json::json!({ "id": "a", "status": "DEAD", "replayed": false }));
    let dead = &shell.json(&["dlq", "list", "q"])["tasks"][0];
    assert_eq!(dead["attempts"][0]["error"]["type"], "bad");
    let purged = shell.json(&["dlq", "purge", "q", "--all"]);
    assert_eq!(purged, serde_json::json!({ "count": 1, "dry_run": false }));
    assert!(shell.json(&["queue", "list"])["queues"].is_array());
    let cancelled = &shell.json(&["cancel", "b"])["tasks"][0];
    assert_eq!(
        *cancelled,
        serde_json::json!({ "id": "b", "status": "CANCELLED", "cancelled": true })
    );
}

#[tokio::test]
async fn exit_codes_tell_refusals_from_nothing_to_do_and_from_an_outage() {
    let mut shell = Shell::open().await;
    for (args, code) in [
        (&["stats"][..], 0),
        (&["list", "nobody-knows-it"], 0),
        (&["get", "nope"], 1),
        (&["cancel", "nope"], 1),
        (&["enqueue", " ", "h"], 1),
        (&["claim", "q"], 4),
        (&["claim", "q", "--lease", "1ms"], 1),
        (&["complete", "nope", "AAAA"], 1),
        (&["dlq", "redrive", "q", "--all"], 4),
        (&["dlq", "purge", "q", "--id", "nope"], 4),
        (&["list", "q", "--page-token", "forged"], 1),
    ] {
        let ran = shell.run(args);
        assert_eq!(ran.code, code, "rdq {args:?}: {ran:?}");
        assert!(!ran.err.contains("panicked"), "{ran:?}");
    }
    shell.server.kill();
    let outage = shell.run(&["stats"]);
    assert_eq!(outage.code, 3, "{outage:?}");
    assert!(outage.err.contains("rdq serve"), "it says what to do: {outage:?}");
}

#[tokio::test]
async fn errors_for_programs_are_json_too() {
    let shell = Shell::open().await;
    let ran = shell.run(&["get", "nope", "--output", "json"]);
    assert_eq!((ran.code, ran.out.as_str()), (1, ""));
    let error: Value = serde_json::from_str(&ran.err).expect("JSON");
    assert_eq!(error["error"]["reason"], "NOT_FOUND");
    assert_eq!(error["error"]["metadata"]["task_id"], "nope");
}

#[tokio::test]
async fn lists_go_on_where_they_ended() {
    let shell = Shell::open().await;
    let lines = shell.fed(&["enqueue", "q", "h", "--lines", "--id-prefix", "n"], &numbers(5));
    assert_eq!(lines.code, 0, "{lines:?}");
    let mut ids = Vec::new();
    let mut token = String::new();
    loop {
        let page = shell.json(&["list", "q", "--limit", "2", "--page-token", &token]);
        let tasks = page["tasks"].as_array().expect("tasks");
        ids.extend(tasks.iter().map(|task| task["id"].as_str().expect("text").to_owned()));
        token = page["next_page_token"].as_str().expect("text").to_owned();
        if token.is_empty() {
            break;
        }
    }
    assert_eq!(ids, ["n5", "n4", "n3", "n2", "n1"]);
    let more = shell.run(&["list", "q", "--limit", "2"]);
    assert!(more.err.contains("--page-token"), "people are told how to go on: {more:?}");
}

#[tokio::test]
async fn lines_become_tasks_in_batches_and_can_be_sent_again() {
    let shell = Shell::open().await;
    let import = ["enqueue", "q", "h", "--lines", "--id-prefix", "n"];
    let first = shell.fed(&import, &numbers(1200));
    assert_eq!(first.out, "1200 lines: 1200 enqueued, 0 there already, 0 refused\n", "{first:?}");
    let again = shell.fed(&[&import[..], &["--output", "json"]].concat(), &numbers(1201));
    let counts: Value = serde_json::from_str(&again.out).expect("JSON");
    assert_eq!(
        counts,
        serde_json::json!({ "lines": 1201, "created": 1, "existing": 1200, "refused": 0 })
    );
    assert_eq!(shell.json(&["get", "n7"])["task"]["payload"], "7");

    // One line that is too long is refused by its number; the others are not held back.
    let mut lines = vec![b'x'; 1_100_000];
    lines.extend_from_slice(b"\r\nshort");
    let mixed = shell.fed(&["enqueue", "mixed", "h", "--lines"], &lines);
    assert_eq!(mixed.code, 1, "{mixed:?}");
    assert!(mixed.err.contains("line 1: PAYLOAD_TOO_LARGE"), "{mixed:?}");
    assert_eq!(mixed.out, "2 lines: 1 enqueued, 0 there already, 1 refused\n");
    assert_eq!(shell.fed(&["enqueue", "q", "h", "--lines"], b"").code, 4);
}

fn numbers(count: u32) -> Vec<u8> {
    (1..=count).flat_map(|number| format!("{number}\n").into_bytes()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_on_sqlite_keeps_the_contract_as_check_reads_it() {
    let shell = Shell::open().await;
    let all = shell.run(&["check"]);
    assert_eq!(all.code, 0, "{}", all.out);
    assert!(all.out.contains("0 failed") && !all.out.contains(" 0 passed"), "{}", all.out);
    let some = shell.run(&["check", "lease", "--output", "json"]);
    assert_eq!(some.code, 0, "{some:?}");
    for line in some.out.lines() {
        serde_json::from_str::<Value>(line).unwrap_or_else(|error| panic!("{error}: {line}"));
    }
    let none = shell.run(&["check", "no case has such a name"]);
    assert_eq!(none.code, 4, "{none:?}");
    let listed = shell.ok(&["check", "--list"]);
    assert!(listed.contains("lease::"), "{listed}");
    assert_eq!(shell.run(&["check", "--server", "127.0.0.1:1"]).code, 3);
}

#[tokio::test]
async fn a_small_bench_measures_everything_and_leaves_no_queue() {
    let shell = Shell::open().await;
    let report = shell.json(&[
        "bench",
        "--tasks",
        "600",
        "--unary-tasks",
        "200",
        "--pick-ups",
        "5",
        "--callers",
        "8",
        "--events",
        "1200",
        "--notifications",
        "5",
    ]);
    let tasks = [("enqueue", 200), ("claim_complete", 400), ("lives", 600), ("pick_up", 5)];
    // Whole commits of 500 events.
    let rest = [("publish", 1500), ("read", 1500), ("notify", 5)];
    for (part, count) in tasks.into_iter().chain(rest) {
        assert_eq!(report[part]["count"], count, "{report}");
    }
    assert!(report["lives"]["per_second"].as_f64().expect("a rate") > 0.0);
    assert!(report["pick_up"]["p99_us"].as_u64().expect("a latency") > 0);
    // What nobody claims is worked off, too.
    let alone = shell.json(&["bench", "--only", "enqueue", "--unary-tasks", "1500"]);
    assert_eq!((&alone["enqueue"]["count"], &alone["lives"]), (&1500.into(), &Value::Null));
    assert_eq!(shell.json(&["queue", "list"])["queues"], serde_json::json!([]));
}

#[tokio::test]
async fn streams_are_published_read_followed_and_trimmed() {
    let shell = Shell::open().await;
    let first = shell.json(&["stream", "publish", "orders", "--payload", "one"])["offset"].as_i64();
    let first = first.expect("an offset");
    shell.json(&["stream", "publish", "orders", "--key", "k", "--payload", "two"]);

    let events = &shell.json(&["stream", "read", "orders"])["events"];
    assert_eq!(events[0]["payload"], "one");
    assert_eq!((&events[1]["key"], &events[1]["payload"]), (&"k".into(), &"two".into()));
    let after = first.to_string();
    let rest = &shell.json(&["stream", "read", "orders", "--after", &after])["events"];
    assert_eq!(rest.as_array().map(Vec::len), Some(1));

    let subscribe = ["stream", "subscribe", "orders", "billing", "--count", "2", "--save"];
    let followed = shell.ok(&[&subscribe[..], &["--output", "json"]].concat());
    assert_eq!(followed.lines().count(), 2);
    let saved = shell.json(&["stream", "offset", "orders", "billing"])["offset"].as_i64();
    assert!(saved > Some(first), "{saved:?}");
    let save = ["stream", "offset", "orders", "billing", "--save", &after];
    assert_eq!(shell.json(&save)["offset"].as_i64(), saved, "an offset never goes back");
    let nothing = shell.run(&["stream", "read", "orders", "--consumer", "billing"]);
    assert_eq!(nothing.code, 4, "{nothing:?}");

    let trimmed = shell.json(&["stream", "trim", "orders", "--horizon", &after]);
    assert_eq!(trimmed, serde_json::json!({ "count": 1 }));
    assert_eq!(shell.run(&["stream", "trim", "orders", "--horizon", "-5"]).code, 4);
}

#[tokio::test]
async fn locks_are_taken_kept_and_given_back() {
    let shell = Shell::open().await;
    let mine = ["lock", "try", "deploy", "--owner", "me", "--ttl", "5m"];
    let held = shell.json(&mine);
    assert_eq!((&held["acquired"], &held["owner"]), (&true.into(), &"me".into()));
    let theirs = shell.run(&["lock", "try", "deploy", "--owner", "you", "--ttl", "5m"]);
    assert_eq!(theirs.code, 4, "{theirs:?}");
    assert_eq!(shell.json(&["lock", "get", "deploy"])["generation"], held["generation"]);

    let renew = ["lock", "renew", "deploy", "--owner", "me", "--ttl", "10m"];
    assert_eq!(shell.json(&renew)["renewed"], true);
    let other = [&renew[..], &["--generation", "999"]].concat();
    assert_eq!(shell.run(&other).code, 4);
    let release = ["lock", "release", "deploy", "--owner", "me"];
    assert_eq!(shell.json(&release)["released"], true);
    assert_eq!(shell.run(&release).code, 4);
    assert_eq!(shell.run(&["lock", "get", "deploy"]).code, 4);
    assert_eq!(shell.run(&["lock", "try", "deploy", "--owner", "me", "--ttl", "0s"]).code, 1);
}

#[tokio::test]
async fn schedules_are_stored_listed_paused_and_removed() {
    let shell = Shell::open().await;
    let put = ["schedule", "put", "nightly", "0 3 * * *", "reports", "build"];
    let zoned = [&put[..], &["--time-zone", "Europe/Berlin", "--payload", "x"]].concat();
    let stored = &shell.json(&zoned)["schedule"];
    assert_eq!((&stored["time_zone"], &stored["payload"]), (&"Europe/Berlin".into(), &"x".into()));
    assert!(stored["next_boundary_at"].is_string(), "{stored}");

    let every = ["schedule", "put", "pulse", "@every 1s", "health", "ping"];
    shell.json(&every);
    let names = shell.json(&["schedule", "list"]);
    let names: Vec<_> =
        names["schedules"].as_array().expect("schedules").iter().map(|it| &it["name"]).collect();
    assert_eq!(names, ["nightly", "pulse"]);
    let claimed = loop {
        let claimed = shell.run(&["claim", "health", "--output", "json"]);
        if claimed.code == 0 {
            break claimed.out;
        }
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    };
    assert!(claimed.contains("\"ping\""), "{claimed}");

    let paused = &shell.json(&["schedule", "pause", "nightly"])["schedule"];
    assert_eq!((&paused["paused"], &paused["next_boundary_at"]), (&true.into(), &Value::Null));
    assert_eq!(shell.json(&["schedule", "resume", "nightly"])["schedule"]["paused"], false);
    assert_eq!(shell.json(&["schedule", "delete", "nightly"])["existed"], true);
    assert_eq!(shell.run(&["schedule", "delete", "nightly"]).code, 4);
    let bad = shell.run(&["schedule", "put", "bad", "30 2 30 2 *", "q", "h"]);
    assert_eq!(bad.code, 1);
    assert!(bad.err.contains("INVALID_SPEC"), "{bad:?}");
}
