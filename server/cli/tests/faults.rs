//! Faults done to the real binary, on SQLite: it is killed, starved, cut off and lied to, while
//! callers record what they were answered. Each test proves that its fault happened, and judges the
//! history by the rules C1 to C8. What the storages promise without a server is the kit's matter.

mod faults {
    pub(super) mod server_killed;
    pub(super) mod worker_lost;
    pub(super) mod power_cut;
    pub(super) mod disk_full;
    pub(super) mod cancel_storm;
    pub(super) mod shared_file;
    pub(super) mod stalled_streams;
    pub(super) mod sizes;
    pub(super) mod drain;
    pub(super) mod poison_tasks;
    pub(super) mod clock_jumps;
    pub(super) mod bad_bytes;
}
mod harness;

use harness::trial;
use std::process::ExitCode;

fn main() -> ExitCode {
    use faults as f;
    harness::run(vec![
        trial("f1_kill_9_of_the_server_loses_nothing", f::server_killed::loses_nothing),
        trial("f3_a_stopped_worker_is_too_late", f::worker_lost::stopped_is_too_late),
        trial("f3_a_stopped_worker_may_still_be_in_time", f::worker_lost::stopped_may_be_in_time),
        trial("f3_the_task_of_a_killed_worker_comes_back", f::worker_lost::killed_comes_back),
        trial("f5_a_power_cut_loses_nothing_acknowledged", f::power_cut::loses_nothing),
        trial("f8_a_full_disk_is_told_and_survived", f::disk_full::is_told_and_survived),
        trial("f12_cancelled_calls_leave_nothing_behind", f::cancel_storm::leaves_nothing_behind),
        trial("f12_claims_of_the_gone_go_back", f::cancel_storm::claims_of_the_gone_go_back),
        trial("f13_the_clock_may_jump_between_starts", f::clock_jumps::cost_at_most_a_redelivery),
        trial("f19_two_servers_share_one_file", f::shared_file::serves_two),
        trial("f19_a_long_reader_holds_up_nobody", f::shared_file::bears_a_long_reader),
        trial("f21_an_unread_subscription_is_bounded", f::stalled_streams::unread_is_bounded),
        trial("f21_a_stopped_subscriber_is_bounded", f::stalled_streams::stopped_is_bounded),
        trial("f21_a_stopped_peer_is_found_dead", f::stalled_streams::stopped_is_found_dead),
        trial("f21_a_dead_work_stream_is_bounded", f::stalled_streams::dead_work_is_bounded),
        trial("f23_bad_bytes_get_typed_errors", f::bad_bytes::get_typed_errors),
        trial("f24_sizes_at_and_beyond_the_limits", f::sizes::at_and_beyond_the_limits),
        trial("f24_large_answers_are_split", f::sizes::large_answers_are_split),
        trial("f26_a_drain_ends_everything_in_order", f::drain::ends_everything_in_order),
        trial("f26_a_second_signal_ends_at_once", f::drain::a_second_signal_ends_at_once),
        trial("f31_poison_tasks_die_alone", f::poison_tasks::die_alone),
    ])
}
