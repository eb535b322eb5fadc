//! The tour of a newcomer: a task fails, comes back, dies, is redriven and completes.

use super::shell::Shell;

#[tokio::test]
async fn a_task_fails_comes_back_dies_is_redriven_and_completes() {
    let shell = Shell::open().await;
    shell.ok(&[
        "queue",
        "put",
        "emails",
        "--set",
        "retry.max_attempts=2",
        "--set",
        "retry.initial_backoff=10ms",
    ]);
    let enqueue = ["enqueue", "emails", "send", "--id", "order-42", "--payload", r#"{"to":"a"}"#];
    assert_eq!(shell.ok(&enqueue), "order-42\n");
    let again = shell.run(&enqueue);
    assert_eq!((again.code, again.out.as_str()), (0, "order-42\n"), "{again:?}");
    assert!(again.err.contains("there already"), "{again:?}");

    let (id, token) = shell.claim("emails");
    let failed = shell.ok(&["fail", &id, &token, "--error-type", "http.503", "--message", "down"]);
    assert!(failed.starts_with("order-42 PENDING, due "), "{failed}");
    let repeated = shell.json(&["fail", &id, &token]);
    assert_eq!(repeated["replayed"], true, "a repeated outcome changes nothing: {repeated}");

    let (id, token) = until_claimed(&shell).await;
    let died = shell.json(&["fail", &id, &token, "--error-type", "http.503"]);
    assert_eq!(died["status"], "DEAD");
    let stale = shell.run(&["complete", &id, &token]);
    assert_eq!(stale.code, 1, "{stale:?}");
    assert!(stale.err.contains("STALE_CLAIM") && stale.err.contains("what to do"), "{stale:?}");

    let letters = shell.ok(&["dlq", "list", "emails", "--error-type", "http.503"]);
    assert!(letters.contains("order-42") && letters.contains("http.503"), "{letters}");
    let dry = shell.ok(&["dlq", "redrive", "emails", "--all", "--dry-run"]);
    assert_eq!(dry, "1 dead letter would be redriven\n");
    let redriven = shell.ok(&["dlq", "redrive", "emails", "--id", "order-42"]);
    assert_eq!(redriven, "1 dead letter redriven\n");

    let (id, token) = shell.claim("emails");
    let completed = shell.ok(&["complete", &id, &token, "--result", "sent"]);
    assert_eq!(completed, "order-42 SUCCEEDED\n");

    let again = shell.run(&enqueue);
    assert!(again.err.contains("SUCCEEDED") && again.err.contains("not run again"), "{again:?}");

    let task = &shell.json(&["get", "order-42"])["task"];
    assert_eq!(task["status"], "SUCCEEDED");
    assert_eq!(task["payload"], r#"{"to":"a"}"#);
    assert_eq!(task["result"], "sent");
    assert_eq!(task["redrive_count"], 1);
    let outcomes: Vec<_> = task["attempts"].as_array().expect("attempts").iter().collect();
    let outcomes: Vec<_> = outcomes.iter().map(|attempt| &attempt["outcome"]).collect();
    assert_eq!(outcomes, ["RETRYABLE_FAILURE", "PERMANENT_FAILURE", "SUCCESS"]);
    let page = shell.ok(&["get", "order-42"]);
    assert!(page.contains("SUCCEEDED") && page.contains("http.503"), "{page}");
}

/// The backoff is 10 milliseconds; a loaded machine may take longer to let it pass.
async fn until_claimed(shell: &Shell) -> (String, String) {
    for _ in 0..500 {
        let ready = shell.json(&["stats", "emails"])["queues"][0]["ready"].as_i64();
        if ready == Some(1) {
            return shell.claim("emails");
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    panic!("the task did not come back");
}

#[tokio::test]
async fn a_release_gives_the_attempt_back_and_a_cancel_ends_the_task() {
    let shell = Shell::open().await;
    shell.ok(&["enqueue", "q", "h", "--id", "a", "--priority", "-5", "--header", "k=v"]);
    let (id, token) = shell.claim("q");
    let released = shell.ok(&["release", &id, &token]);
    assert!(released.starts_with("a PENDING"), "{released}");
    let claimed = shell.json(&["claim", "q"]);
    assert_eq!(claimed["tasks"][0]["attempt_no"], 1);
    assert_eq!(claimed["tasks"][0]["task"]["headers"]["k"], "v");

    assert_eq!(shell.ok(&["cancel", "a"]), "a is CANCELLED\n");
    let again = shell.run(&["cancel", "a"]);
    assert_eq!((again.code, again.out.as_str()), (4, "a was already CANCELLED\n"));
    let token = claimed["tasks"][0]["claim_token"].as_str().expect("text");
    let stale = shell.run(&["complete", "a", token]);
    assert_eq!(stale.code, 1);
    assert!(stale.err.contains("detail: CANCELLED"), "{stale:?}");
}

#[tokio::test]
async fn queues_are_configured_key_by_key_or_as_a_whole_paused_and_removed() {
    let shell = Shell::open().await;
    shell.ok(&["queue", "put", "q", "--set", "retry.max_attempts=3"]);
    shell.ok(&[
        "queue",
        "put",
        "q",
        "--set",
        "execution.lease=5m",
        "--set",
        "classification.permanent=a*,b",
    ]);
    let config = &shell.json(&["queue", "get", "q"])["queue"]["config"];
    assert_eq!(
        *config,
        serde_json::json!({
            "retry": { "max_attempts": 3 },
            "execution": { "lease": "5m" },
            "classification": { "permanent": ["a*", "b"] },
        })
    );
    let shown = shell.ok(&["queue", "get", "q"]);
    let row = |key: &str| {
        let line = shown.lines().find(|line| line.starts_with(key));
        let words = line.unwrap_or_else(|| panic!("{key} is not in\n{shown}")).split_whitespace();
        words.skip(1).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(row("retry.max_attempts"), "3 stored");
    assert_eq!(row("classification.permanent"), "a*,b stored");
    assert_eq!(row("retry.initial_backoff"), "1s server's default");
    assert_eq!(row("execution.timeout"), "no bound server's default");
    assert_eq!(row("retention.dead"), "for ever server's default");

    let file = shell.dir.path().join("q.yaml");
    std::fs::write(&file, "retry:\n  max_attempts: 9\n").expect("a file");
    let file = file.to_str().expect("text");
    let whole = shell.json(&["queue", "put", "q", "--file", file, "--set", "paused=true"]);
    assert_eq!(
        whole["queue"]["config"],
        serde_json::json!({ "retry": { "max_attempts": 9 }, "paused": true })
    );
    let inherited = shell.json(&["queue", "put", "q", "--set", "retry.max_attempts="]);
    assert_eq!(inherited["queue"]["effective"]["retry"]["max_attempts"], 5);

    shell.ok(&["queue", "resume", "q"]);
    shell.ok(&["enqueue", "q", "h", "--id", "a"]);
    shell.ok(&["queue", "pause", "q"]);
    assert_eq!(shell.run(&["claim", "q"]).code, 4, "a paused queue hands out nothing");
    assert!(shell.ok(&["queue", "list"]).contains("yes"));
    let held = shell.run(&["queue", "delete", "q"]);
    assert_eq!(held.code, 1, "{held:?}");
    assert!(held.err.contains("QUEUE_NOT_EMPTY"), "{held:?}");
    shell.ok(&["queue", "put", "empty", "--set", "paused=true"]);
    shell.ok(&["queue", "delete", "empty"]);
    assert_eq!(shell.run(&["queue", "delete", "empty"]).code, 4);
}
