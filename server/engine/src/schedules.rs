//! Schedules: tasks that are enqueued again and again, by the clock.

mod spec;
mod cron;
mod zone;
#[cfg(test)]
mod spec_tests;
