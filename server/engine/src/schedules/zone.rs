//! Time zones: those that this build carries, so that every server of one version knows the same.

use jiff::tz::{TimeZone, TimeZoneDatabase};
use std::sync::LazyLock;

static ZONES: LazyLock<TimeZoneDatabase> = LazyLock::new(TimeZoneDatabase::bundled);

/// The zone of an IANA name.
pub(super) fn find(name: &str) -> Option<TimeZone> {
    ZONES.get(name).ok().filter(|zone| !zone.is_unknown())
}
