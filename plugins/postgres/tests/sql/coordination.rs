//! An application that publishes and notifies by the functions of the schema, and leaves to a server
//! what has none.

use crate::application::{Application, failure};
use async_trait::async_trait;
use rdq_spi::{
    ChannelName, ConsumerName, NewEvent, ReadParams, Result, SaveOffset, Signals, Storage as _,
    StreamEvent, StreamName, Streams, Topic, TrimParams, Trimmed, Wakes,
};
use sqlx::Row as _;

#[async_trait]
impl Signals for Application {
    async fn notify(&self, channels: Vec<ChannelName>) -> Result<()> {
        self.check_open()?;
        // All in one transaction of the application's.
        let mut tx = self.db.begin().await.map_err(|error| failure(&error))?;
        for channel in channels {
            let notify = self.call("notify", "answer", "$1, $2").bind(channel.as_str()).bind("x");
            notify.execute(&mut *tx).await.map_err(|error| failure(&error))?;
        }
        tx.commit().await.map_err(|error| failure(&error))
    }

    async fn listen(&self, topics: Vec<Topic>) -> Result<Wakes> {
        self.check_open()?;
        self.server.signals().expect("signals").listen(topics).await
    }
}

impl Application {
    fn server_streams(&self) -> &dyn Streams {
        self.server.streams().expect("streams")
    }
}

#[async_trait]
impl Streams for Application {
    async fn publish(&self, events: Vec<NewEvent>) -> Result<Vec<Result<i64>>> {
        self.check_open()?;
        // Text of PostgreSQL's has no NUL.
        let has_nul =
            |event: &NewEvent| event.key.as_ref().is_some_and(|key| key.as_str().contains('\0'));
        if events.iter().any(has_nul) {
            return self.server_streams().publish(events).await;
        }
        let mut tx = self.db.begin().await.map_err(|error| failure(&error))?;
        let mut offsets = Vec::new();
        for NewEvent { stream, key, payload } in &events {
            let publish = self
                .call("publish", "answer", "$1, $2, $3")
                .bind(stream.as_str())
                .bind(&payload[..])
                .bind(key.as_ref().map(rdq_spi::EventKey::as_str));
            let row = publish.fetch_one(&mut *tx).await;
            let row = row.map_err(|error| failure(&error))?;
            offsets.push(Ok(row.get("answer")));
        }
        tx.commit().await.map_err(|error| failure(&error))?;
        Ok(offsets)
    }

    async fn read(&self, params: ReadParams) -> Result<Vec<StreamEvent>> {
        self.server_streams().read(params).await
    }

    async fn save_offsets(&self, offsets: Vec<SaveOffset>) -> Result<Vec<Result<i64>>> {
        self.server_streams().save_offsets(offsets).await
    }

    async fn offset(&self, stream: StreamName, consumer: ConsumerName) -> Result<i64> {
        self.server_streams().offset(stream, consumer).await
    }

    async fn trim(&self, params: TrimParams) -> Result<Trimmed> {
        self.server_streams().trim(params).await
    }
}
