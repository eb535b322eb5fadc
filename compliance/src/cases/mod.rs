//! Every case of the kit, by area, and the list of them. A case draws its names and ids at random and
//! counts only what is its own; it stays within the defaults of a queue.

mod enqueue;
mod round_trip;
mod claim;
mod order;
mod lease;
mod resolve;
mod replay;
mod cancel;
mod history;
mod dead_letter;
mod paging;
mod sweep;
mod stats;
mod queues;
mod names;
mod bounds;
mod clock;
mod hints;
mod waiting;
mod durable;
mod races;
mod model;
mod capabilities;

mod signals;
mod streams;
mod locks;
mod records;
mod commit;
mod interactive;
mod ledger;

use crate::{Case, Fixture};
use rdq_spi::Durability;

/// What a case needs beyond a store. One that lacks it is shown as ignored, with the reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Needs {
    /// Nothing: every store, also through an engine.
    Store,
    /// No engine between: the case is about what an engine decides or hides.
    Direct,
    /// Dead-letter filters; an engine evaluates those that the storage does not.
    Filters,
    /// Hints.
    Hints,
    /// Claims that wait.
    WaitingClaims,
    /// No hints, and no engine that makes some itself.
    NoHints,
    /// Signals.
    Signals,
    /// Streams.
    Streams,
    /// Streams, and wakes for those who read them.
    Wakes,
    /// Locks.
    Locks,
    /// Records.
    Records,
    /// Transactions, of all that there is.
    Transactions,
    /// Interactive transactions.
    Interactive,
    /// A ledger.
    Ledger,
    /// A ledger that the case may prune.
    OwnLedger,
    /// A ledger, and interactive transactions that may observe.
    InteractiveLedger,
    /// A ledger in a store that survives a restart, and that the case may restart.
    LedgerRestarts,
    /// Coordination in a store that survives a restart, and that the case may restart.
    CoordinationRestarts,
    /// A store that survives a restart, and that the case may restart.
    Restarts,
}

impl Needs {
    fn lacking<F: Fixture>(self) -> Option<&'static str> {
        let can = F::CAPABILITIES;
        let (has, reason) = match self {
            Self::Store => (true, ""),
            Self::Direct => (!F::THROUGH_ENGINE, "an engine stands between"),
            Self::Filters => (can.filter_pushdown || F::THROUGH_ENGINE, "no filter_pushdown"),
            Self::Hints => (can.notify, "no notify"),
            Self::WaitingClaims => (can.waiting_claims, "no waiting_claims"),
            Self::NoHints => (!can.notify && !F::THROUGH_ENGINE, "the store has notify"),
            Self::Signals => (F::FACULTIES.signals, "no signals"),
            Self::Wakes if !F::FACULTIES.signals => (false, "no signals"),
            Self::Streams | Self::Wakes => (F::FACULTIES.streams, "no streams"),
            Self::Locks => (F::FACULTIES.locks, "no locks"),
            Self::Records => (F::FACULTIES.records, "no records"),
            Self::Transactions => (F::FACULTIES.transactions, "no transactions"),
            Self::Interactive => (F::FACULTIES.interactive, "no interactive transactions"),
            Self::Ledger => (F::FACULTIES.ledger, "no ledger"),
            Self::OwnLedger | Self::InteractiveLedger | Self::LedgerRestarts
                if !F::FACULTIES.ledger =>
            {
                (false, "no ledger")
            }
            Self::OwnLedger => (F::ISOLATED, "the store is not the kit's to prune"),
            // The wire has no observations within them.
            Self::InteractiveLedger if F::THROUGH_ENGINE => return Self::Direct.lacking::<F>(),
            Self::InteractiveLedger => return Self::Interactive.lacking::<F>(),
            Self::CoordinationRestarts if !F::FACULTIES.streams => (false, "no streams"),
            Self::CoordinationRestarts if !F::FACULTIES.locks => (false, "no locks"),
            Self::CoordinationRestarts if !F::FACULTIES.records => (false, "no records"),
            Self::LedgerRestarts | Self::CoordinationRestarts => {
                return Self::Restarts.lacking::<F>();
            }
            Self::Restarts if !F::ISOLATED => (false, "the store is not the kit's to restart"),
            Self::Restarts => (can.durability > Durability::None, "the store is not durable"),
        };
        (!has).then_some(reason)
    }
}

/// A case by its function: its name is the function's path.
macro_rules! case {
    ($rule:literal, $needs:ident, $area:ident :: $story:ident) => {
        Case {
            rule: $rule,
            name: concat!(stringify!($area), "::", stringify!($story)),
            ignored: Needs::$needs.lacking::<F>(),
            story: Box::new(|| Box::pin(async { $area::$story(F::create().await).await })),
        }
    };
}

/// Every case. One left out of this list is dead code, which does not build.
#[rustfmt::skip] // A table: one case a line.
#[allow(clippy::too_many_lines, reason = "a table")]
pub(crate) fn all<F: Fixture>() -> Vec<Case> {
    vec![
        case!("IdempotentEnqueue", Store, enqueue::a_repeated_id_is_the_same_task),
        case!("IdempotentEnqueue", Store, enqueue::a_finished_task_is_not_admitted_again),
        case!("IdempotentEnqueue", Store, enqueue::an_id_of_another_queue_is_a_conflict),
        case!("IdempotentEnqueue", Store, enqueue::a_batch_answers_each_task_in_its_order),
        case!("IdempotentEnqueue", Store, enqueue::one_of_fifty_concurrent_admissions_creates),
        case!("IdempotentEnqueue", Store, enqueue::two_queues_that_race_for_an_id_do_not_both_get_it),
        case!("LosslessRoundTrip", Store, enqueue::what_is_carried_over_is_kept),
        case!("StorageClock", Store, enqueue::an_admitted_task_is_pending_and_due_when_it_says),
        case!("LosslessRoundTrip", Store, round_trip::every_answer_holds_what_was_sent),
        case!("LosslessRoundTrip", Store, round_trip::payloads_of_every_size_come_back),
        case!("LosslessRoundTrip", Store, round_trip::what_a_worker_reports_comes_back),
        case!("LosslessRoundTrip", Store, round_trip::carried_over_records_come_back),
        case!("NoDoubleClaim", Store, claim::a_task_is_handed_out_once),
        case!("NoDoubleClaim", Store, claim::claims_of_one_call_share_no_task),
        case!("NoDoubleClaim", Store, claim::a_claim_takes_from_its_queues_alone),
        case!("StorageClock", Store, claim::a_claim_shows_what_it_left),
        case!("NoDoubleClaim", Store, claim::nothing_due_is_an_empty_answer),
        case!("NoPolicy", Direct, claim::a_task_with_spent_attempts_is_handed_out),
        case!("NoPolicy", Direct, claim::the_workers_lease_wins_then_the_tasks_then_the_queues),
        case!("GenerationsGrow", Store, claim::generations_grow_over_purge_and_readmission),
        case!("Fencing", Store, claim::tokens_of_an_earlier_life_are_stale),
        case!("OrderedByPriorityThenDue", Store, order::priority_then_due_then_admission),
        case!("OrderedByPriorityThenDue", Store, order::a_batch_is_admitted_in_its_order),
        case!("OrderedByPriorityThenDue", Store, order::a_lapsed_task_counts_from_its_leases_end),
        case!("OrderedByPriorityThenDue", Store, order::a_retry_is_ordered_by_its_new_due_time),
        case!("Fairness", Store, order::a_full_queue_does_not_starve_another),
        case!("Fairness", Store, order::single_claims_are_fair_beside_those_of_others),
        case!("StorageClock", Direct, order::a_claim_says_when_to_come_again),
        case!("LeaseRecoveryCounts", Store, lease::a_reclaim_appends_and_counts),
        case!("NoDoubleClaim", Store, lease::a_lease_that_runs_is_not_reclaimed),
        case!("LeaseRecoveryCounts", Store, lease::every_lapse_is_recorded),
        case!("StorageClock", Store, lease::a_heartbeat_resets_the_lease_both_ways),
        case!("Fencing", Store, lease::a_heartbeat_after_the_lapse_keeps_the_claim),
        case!("LosslessRoundTrip", Store, lease::a_checkpoint_is_kept_replaced_and_cleared),
        case!("Fencing", Store, lease::a_resolved_claim_is_not_extended),
        case!("Bounded", Direct, lease::no_heartbeat_reaches_beyond_held_max),
        case!("Fencing", Direct, lease::a_strict_heartbeat_after_the_lapse_is_stale),
        case!("Fencing", Store, lease::heartbeats_of_a_batch_are_answered_each),
        case!("Fencing", Store, lease::live_claims_are_told_from_dead_ones),
        case!("AtomicTransitions", Store, resolve::each_call_leaves_what_it_says),
        case!("StorageClock", Store, resolve::a_retry_is_due_when_the_call_says),
        case!("StorageClock", Direct, resolve::a_release_is_never_due_before_now),
        case!("History", Store, resolve::a_release_gives_the_attempt_out_again),
        case!("Fencing", Store, resolve::a_stale_token_changes_nothing),
        case!("Fencing", Store, resolve::a_token_that_was_never_issued_is_stale),
        case!("Fencing", Store, resolve::a_missing_task_is_not_found),
        case!("Fencing", Store, resolve::a_token_is_good_after_its_lease_until_the_reclaim),
        case!("Fencing", Direct, resolve::a_strict_token_is_stale_from_the_deadline_on),
        case!("ReplaySafeResolution", Direct, resolve::what_was_done_in_time_is_replayed_strictly_too),
        case!("Fencing", Store, resolve::resolutions_of_a_batch_are_answered_each),
        case!("GenerationsGrow", Direct, resolve::a_forgotten_task_is_gone_at_once),
        case!("ReplaySafeResolution", Store, replay::the_same_call_again_succeeds_and_changes_nothing),
        case!("ReplaySafeResolution", Store, replay::contents_are_not_compared),
        case!("ReplaySafeResolution", Store, replay::another_call_with_a_spent_token_is_stale),
        case!("ReplaySafeResolution", Store, replay::a_repeated_fail_gets_what_was_decided_first),
        case!("ReplaySafeResolution", Store, replay::the_memory_ends_with_the_next_claim),
        case!("ReplaySafeResolution", Store, replay::the_memory_ends_with_a_redrive_or_a_purge),
        case!("ReplaySafeResolution", Store, replay::a_cancellation_does_not_end_the_memory),
        case!("ReplaySafeResolution", Store, replay::one_of_many_concurrent_repetitions_does_it),
        case!("Cancel", Store, cancel::a_pending_task_is_cancelled_without_a_record),
        case!("Cancel", Store, cancel::a_task_in_flight_is_taken_from_its_holder),
        case!("Cancel", Store, cancel::a_lapsed_task_is_cancelled_as_one_in_flight),
        case!("Cancel", Store, cancel::a_finished_task_does_not_change),
        case!("Cancel", Store, cancel::a_batch_is_answered_each),
        case!("History", Direct, history::a_full_history_folds_and_never_blocks),
        case!("History", Store, history::the_oldest_text_is_shed_first),
        case!("History", Store, history::what_a_lapse_appends_sheds_too),
        case!("StablePagination", Store, dead_letter::a_list_is_newest_first_and_of_one_queue),
        case!("Bounded", Store, dead_letter::a_list_shows_the_final_attempt_or_all),
        case!("Filters", Filters, dead_letter::a_filter_compares_exactly),
        case!("Filters", Filters, dead_letter::a_filter_sees_the_final_attempt_alone),
        case!("RedriveResets", Store, dead_letter::a_redrive_resets_and_the_history_persists),
        case!("RedriveResets", Store, dead_letter::a_redrive_by_ids_takes_those_alone),
        case!("Filters", Filters, dead_letter::a_redrive_by_filter_takes_what_matches),
        case!("RedriveResets", Store, dead_letter::a_dry_run_counts_and_changes_nothing),
        case!("Bounded", Direct, dead_letter::steps_are_bounded_and_cover_all),
        case!("RedriveResets", Direct, dead_letter::a_redrive_spaces_the_due_times),
        case!("RedriveResets", Direct, dead_letter::a_redrive_never_takes_what_died_again),
        case!("Purge", Store, dead_letter::a_purge_removes_and_frees_the_id),
        case!("Filters", Filters, dead_letter::a_purge_by_filter_takes_what_matches),
        case!("StablePagination", Store, paging::entries_of_one_millisecond_are_told_apart),
        case!("StablePagination", Store, paging::arrivals_and_departures_disturb_nobody_else),
        case!("StablePagination", Store, paging::new_tasks_never_enter_a_list),
        case!("StablePagination", Store, paging::a_list_is_of_one_status_if_asked),
        case!("StablePagination", Store, paging::a_list_shows_histories_on_request),
        case!("StablePagination", Store, paging::an_empty_list_is_one_empty_page),
        case!("StablePagination", Store, paging::positions_that_nobody_minted_are_refused),
        case!("Sweep", Store, sweep::what_expired_waiting_becomes_a_dead_letter),
        case!("Sweep", Store, sweep::what_expires_in_flight_is_taken_from_its_holder),
        case!("Sweep", Direct, sweep::nothing_is_expired_unless_asked),
        case!("Sweep", Direct, sweep::expiry_goes_in_bounded_steps),
        case!("Sweep", Direct, sweep::retention_removes_what_is_older_and_nothing_else),
        case!("Sweep", Store, sweep::an_instant_bounds_retention_exclusively),
        case!("Sweep", Direct, sweep::a_dead_letters_own_retention_wins),
        case!("Sweep", Direct, sweep::removal_goes_in_bounded_steps),
        case!("Sweep", Store, sweep::a_redriven_task_that_expired_dies_again),
        case!("Stats", Store, stats::an_unknown_queue_has_zeroes),
        case!("Stats", Store, stats::every_status_is_counted),
        case!("Stats", Store, stats::what_waits_for_later_has_no_age),
        case!("Stats", Store, stats::counts_equal_the_truth_after_a_churn),
        case!("Queues", Store, queues::a_configuration_comes_back_and_is_replaced_whole),
        case!("Queues", Store, queues::records_come_by_name),
        case!("Queues", Store, queues::a_queue_that_holds_a_task_is_not_deleted),
        case!("Queues", Store, queues::deleting_says_whether_there_was_one),
        case!("Queues", Store, queues::queues_are_known_by_task_or_configuration),
        case!("Queues", Direct, queues::every_server_gets_the_same_secret),
        case!("LosslessRoundTrip", Store, names::queues_that_look_alike_are_apart),
        case!("LosslessRoundTrip", Store, names::ids_that_look_alike_are_apart),
        case!("Filters", Filters, names::handlers_and_error_types_that_look_alike_are_apart),
        case!("LosslessRoundTrip", Store, names::workers_are_recorded_as_they_are_called),
        case!("LosslessRoundTrip", Store, names::configurations_of_names_that_look_alike_are_apart),
        case!("Bounded", Store, bounds::a_claim_is_bounded_in_items),
        case!("Bounded", Direct, bounds::a_claim_is_bounded_in_bytes),
        case!("Bounded", Direct, bounds::histories_count_in_a_claims_bytes),
        case!("Bounded", Store, bounds::a_claim_carries_the_newest_attempts_lightly),
        case!("Bounded", Direct, bounds::pages_are_bounded_in_bytes_and_go_on),
        case!("StorageClock", Store, clock::instants_are_exact_from_year_1_to_9999),
        case!("StorageClock", Store, clock::a_delay_beyond_the_year_9999_is_cut),
        case!("StorageClock", Store, clock::durations_are_rounded_up),
        case!("StorageClock", Store, clock::it_never_runs_backwards),
        case!("WaitingClaims", WaitingClaims, waiting::one_gets_what_is_admitted),
        case!("WaitingClaims", WaitingClaims, waiting::they_get_what_a_claim_would_have),
        case!("WaitingClaims", WaitingClaims, waiting::one_gets_what_comes_back),
        case!("WaitingClaims", WaitingClaims, waiting::one_that_has_waited_enough_takes_nothing),
        case!("WaitingClaims", WaitingClaims, waiting::one_whose_caller_is_gone_keeps_nothing),
        case!("NoDoubleClaim", WaitingClaims, waiting::a_burst_is_shared_out_without_loss),
        case!("Hints", Hints, hints::one_comes_at_once_if_a_task_is_due),
        case!("Hints", Hints, hints::an_admission_is_heard_of),
        case!("Hints", Hints, hints::a_task_that_waited_before_is_heard_of),
        case!("Hints", Hints, hints::what_comes_back_is_heard_of),
        case!("Hints", Hints, hints::a_lapse_is_heard_of),
        case!("Hints", Hints, hints::a_heartbeat_that_shortens_is_heard_of),
        case!("Hints", Hints, hints::a_redrive_is_heard_of),
        case!("Hints", Hints, hints::nobody_who_waits_misses_it),
        case!("Hints", Hints, hints::a_burst_is_worked_off_by_hints_alone),
        case!("Durable", Restarts, durable::everything_survives_a_restart),
        case!("GenerationsGrow", Restarts, durable::generations_grow_over_restarts),
        case!("Closed", Store, durable::a_closed_handle_says_so),
        case!("AtomicTransitions", Store, durable::a_write_is_seen_through_every_handle_at_once),
        case!("NoDoubleClaim", Store, races::stalled_and_quick_workers_finish_every_task_once),
        case!("NoDoubleClaim", Store, races::claimants_share_out_every_task_once),
        case!("AtomicTransitions", Store, races::one_of_many_ends_of_a_claim_wins),
        case!("AtomicTransitions", Store, races::a_cancellation_and_a_completion_do_not_both_win),
        case!("AtomicTransitions", Store, races::a_reclaim_and_a_late_completion_do_not_both_win),
        case!("RedriveResets", Store, races::concurrent_redrives_take_each_dead_letter_once),
        case!("AtomicTransitions", Store, races::dropped_calls_apply_wholly_or_not_at_all),
        case!("NoDoubleClaim", Store, races::heartbeats_keep_a_claim_among_claimants),
        case!("AtomicTransitions", Store, races::admissions_and_claims_at_once_lose_nothing),
        case!("Model", Store, model::a_random_history_is_answered_by_the_rules),
        case!("Capabilities", Store, capabilities::they_are_what_the_fixture_claims),
        case!("Capabilities", NoHints, capabilities::a_storage_without_hints_says_so),
        case!("Capabilities", Store, capabilities::a_storage_that_is_up_answers),
        case!("WakesReach", Signals, signals::a_notification_wakes_who_listens),
        case!("WakesReach", Signals, signals::who_comes_later_hears_nothing),
        case!("WakesReach", Signals, signals::a_burst_may_coalesce_but_is_heard_of),
        case!("WakesReach", Signals, signals::channels_that_look_alike_are_apart),
        case!("WakesReach", Signals, signals::a_closed_handle_ends_its_listeners),
        case!("StreamOrder", Streams, streams::events_come_back_in_the_order_of_their_offsets),
        case!("LosslessRoundTrip", Streams, streams::keys_and_payloads_come_back_exactly),
        case!("LosslessRoundTrip", Streams, streams::streams_and_consumers_that_look_alike_are_apart),
        case!("NumericDomains", Streams, streams::any_offset_is_a_place_to_begin),
        case!("Bounded", Streams, streams::a_read_is_bounded_in_items_and_bytes),
        case!("MonotoneOffsets", Streams, streams::a_saved_offset_never_goes_back),
        case!("MonotoneOffsets", Streams, streams::concurrent_saves_leave_the_highest),
        case!("TrimBoundary", Streams, streams::a_trim_removes_up_to_its_horizon_exactly),
        case!("TrimBoundary", Streams, streams::offsets_are_not_reused_after_a_trim),
        case!("TrimBoundary", Streams, streams::a_trim_goes_in_bounded_steps),
        case!("TrimBoundary", Wakes, streams::a_reader_loses_nothing_beside_a_trim),
        case!("WakesReach", Wakes, streams::an_event_wakes_who_listens),
        case!("StreamOrder", Streams, streams::readers_miss_nothing_of_concurrent_publishers),
        case!("LockExclusion", Locks, locks::one_of_many_gets_the_lock),
        case!("LockExclusion", Locks, locks::the_holder_gets_the_hold_that_it_has),
        case!("LockExclusion", Locks, locks::a_hold_that_ended_is_over_and_free),
        case!("LockExclusion", Locks, locks::only_the_holder_renews_and_releases),
        case!("LockExclusion", Locks, locks::a_hold_is_told_from_the_owners_earlier_ones),
        case!("LockExclusion", Locks, locks::renewals_keep_it_among_those_who_want_it),
        case!("GenerationsGrow", Locks, locks::generations_grow_over_releases_and_lapses),
        case!("Fencing", Locks, locks::the_generation_fences_off_who_held_it_before),
        case!("LosslessRoundTrip", Locks, locks::names_and_owners_that_look_alike_are_apart),
        case!("CompareAndSet", Records, records::a_record_is_made_changed_and_removed),
        case!("CompareAndSet", Records, records::another_revision_is_a_conflict_and_changes_nothing),
        case!("CompareAndSet", Records, records::one_of_many_concurrent_changes_wins),
        case!("CompareAndSet", Records, records::increments_by_many_lose_none),
        case!("RevisionsGrow", Records, records::revisions_go_on_after_a_removal),
        case!("CompareAndSet", Records, records::changes_of_a_batch_are_answered_each),
        case!("LosslessRoundTrip", Records, records::keys_and_values_come_back_exactly),
        case!("StablePagination", Records, records::a_list_goes_by_key_and_prefix),
        case!("StablePagination", Records, records::arrivals_and_departures_disturb_no_list),
        case!("StablePagination", Records, records::positions_that_nobody_minted_are_refused),
        case!("CommitAtomicity", Transactions, commit::every_kind_of_write_happens_together),
        case!("CommitAtomicity", Transactions, commit::whichever_fails_nothing_happens),
        case!("CommitAtomicity", Transactions, commit::a_later_operation_sees_an_earlier_one),
        case!("CommitAtomicity", Transactions, commit::dropped_calls_apply_wholly_or_not_at_all),
        case!("CommitAtomicity", Transactions, commit::readers_never_see_a_part),
        case!("CommitAtomicity", Transactions, commit::hints_and_wakes_come_after_it),
        case!("Fencing", Transactions, commit::a_stale_token_fails_the_whole),
        case!("CompareAndSet", Transactions, commit::one_of_many_commits_on_a_revision_wins),
        case!("CommitAtomicity", Transactions, commit::transfers_keep_the_sum_and_their_journal),
        case!("ReadYourWrites", Interactive, interactive::reads_see_what_it_wrote_and_nobody_else_does),
        case!("CommitAtomicity", Interactive, interactive::rolled_back_or_dropped_it_leaves_nothing),
        case!("CommitAtomicity", Interactive, interactive::a_commit_happens_as_it_was_answered),
        case!("CommitAtomicity", Interactive, interactive::a_refused_operation_leaves_it_as_it_was),
        case!("CommitAtomicity", Interactive, interactive::of_two_that_change_a_record_one_commits),
        case!("CommitAtomicity", Interactive, interactive::an_open_one_holds_up_nobody_elsewhere),
        case!("StreamOrder", Interactive, interactive::a_hundred_publishers_and_a_reader_that_misses_nothing),
        case!("LedgerReplay", Ledger, ledger::a_first_observation_is_recorded_with_its_effects),
        case!("LedgerReplay", Ledger, ledger::one_without_effects_is_recorded_too),
        case!("LedgerReplay", Ledger, ledger::a_repetition_gets_the_record_and_changes_nothing),
        case!("LedgerConflict", Ledger, ledger::whatever_differs_gets_the_record_and_changes_nothing),
        case!("LedgerReject", Ledger, ledger::a_rejected_one_is_recorded_and_repeated),
        case!("LedgerReject", Ledger, ledger::a_rejected_one_has_no_effects),
        case!("LedgerReplay", Ledger, ledger::an_observation_comes_first),
        case!("CommitAtomicity", Ledger, ledger::an_operation_that_fails_leaves_no_record),
        case!("LedgerRace", Ledger, ledger::of_a_hundred_concurrent_firsts_one_is_first),
        case!("LedgerRace", Ledger, ledger::one_that_fails_leaves_the_place_to_another),
        case!("CommitAtomicity", Ledger, ledger::dropped_calls_leave_record_and_effects_or_neither),
        case!("LosslessRoundTrip", Ledger, ledger::what_is_recorded_comes_back_exactly),
        case!("LosslessRoundTrip", Ledger, ledger::scopes_that_look_alike_are_apart),
        case!("Bounded", OwnLedger, ledger::a_prune_removes_what_is_older_and_nothing_else),
        case!("Bounded", OwnLedger, ledger::a_prune_goes_in_bounded_steps_the_oldest_first),
        case!("LedgerReplay", OwnLedger, ledger::a_scope_whose_record_went_is_first_again),
        case!("CommitAtomicity", InteractiveLedger, ledger::it_is_part_of_its_transaction),
        case!("LedgerReplay", InteractiveLedger, ledger::a_repetition_leaves_its_transaction_as_it_was),
        case!("LedgerRace", InteractiveLedger, ledger::of_two_transactions_of_a_scope_one_commits),
        case!("Durable", LedgerRestarts, ledger::what_was_observed_survives_a_restart),
        case!("Durable", CoordinationRestarts, durable::coordination_survives_a_restart),
        case!("Capabilities", Store, capabilities::faculties_are_what_the_fixture_claims),
    ]
}
