//! Topics as functions tell of them: a letter and a name. It decides nothing.

use crate::packing::Unpacker;
use bytes::Bytes;
use rdq_spi::{ChannelName, StreamName, Topic};

/// Begins a channel's topic; `functions/streams.lua` begins that of a stream with an `s`.
const CHANNEL: &str = "c";

pub(super) fn topic_of_channel(channel: &ChannelName) -> Bytes {
    [CHANNEL, channel.as_str()].concat().into()
}

/// The topics of a message.
pub(crate) fn read(message: &[u8]) -> Vec<Topic> {
    let mut from = Unpacker(message);
    let mut topics = Vec::new();
    while let Some((kind, name)) = from.name().and_then(|topic| topic.split_at_checked(1)) {
        topics.push(match kind {
            CHANNEL => Topic::Channel(ChannelName::stored(name)),
            _ => Topic::Stream(StreamName::stored(name)),
        });
    }
    topics
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a panic is how a test reports")]
mod tests {
    use super::*;
    use crate::packing::Packer;

    #[test]
    fn a_message_names_topics() {
        let (channel, stream) = (ChannelName::stored("a"), StreamName::stored("é"));
        let own = topic_of_channel(&channel);
        let own = std::str::from_utf8(&own).unwrap();
        let message = Packer::default().name(own).name("sé").done();
        let expected = [Topic::Channel(channel), Topic::Stream(stream)];
        assert_eq!(read(&message), expected);
        assert_eq!(read(&message[..message.len() - 1]), expected[..1]);
    }
}
