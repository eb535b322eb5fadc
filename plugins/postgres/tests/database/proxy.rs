//! A proxy between a storage and its database that can lose answers, cut connections, or let nothing
//! through.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::watch,
};

/// The proxy. It ends with the test.
pub(crate) struct Proxy {
    address: SocketAddr,
    faults: Arc<Faults>,
}

struct Faults {
    /// What the database answers is lost, and the connection with it.
    loses_answers: AtomicBool,
    lost: AtomicU64,
    /// Counts the cuts; every connection older than the newest is cut.
    cuts: watch::Sender<u64>,
}

impl Proxy {
    /// Before the database on this port.
    pub(crate) async fn before(port: u16) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let faults = Arc::new(Faults {
            loses_answers: AtomicBool::new(false),
            lost: AtomicU64::new(0),
            cuts: watch::channel(0).0,
        });
        let shared = Arc::clone(&faults);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                if let Ok(server) = TcpStream::connect(("127.0.0.1", port)).await {
                    let (from_client, to_client) = client.into_split();
                    let (from_server, to_server) = server.into_split();
                    tokio::spawn(pass(from_client, to_server, Arc::clone(&shared), false));
                    tokio::spawn(pass(from_server, to_client, Arc::clone(&shared), true));
                }
            }
        });
        Self { address, faults }
    }

    /// Where the database is, through the proxy.
    pub(crate) fn url(&self) -> String {
        format!("postgres://postgres@{}/postgres", self.address)
    }

    /// From now on, or not any more, answers are lost.
    pub(crate) fn lose_answers(&self, lose: bool) {
        self.faults.loses_answers.store(lose, Ordering::SeqCst);
    }

    /// How many were lost so far.
    pub(crate) fn lost(&self) -> u64 {
        self.faults.lost.load(Ordering::SeqCst)
    }

    /// Cuts every connection.
    pub(crate) fn cut_all(&self) {
        self.faults.cuts.send_modify(|cuts| *cuts += 1);
    }
}

async fn pass(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, faults: Arc<Faults>, answers: bool) {
    let mut cut = faults.cuts.subscribe();
    let mut bytes = vec![0; 64 << 10];
    loop {
        let read = tokio::select! {
            read = from.read(&mut bytes) => read.unwrap_or(0),
            _ = cut.changed() => 0,
        };
        if read == 0 {
            return;
        }
        if answers && faults.loses_answers.load(Ordering::SeqCst) {
            faults.lost.fetch_add(1, Ordering::SeqCst);
            return;
        }
        if to.write_all(&bytes[..read]).await.is_err() {
            return;
        }
    }
}
