//! A TCP proxy before a server, which can swallow what the server says, or everything, without a
//! word, and cut its connections.

use std::net::SocketAddr;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::{broadcast, watch},
    task::JoinHandle,
};

/// What it does with bytes that come from now on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    Forward,
    /// Swallows what the server says.
    Mute,
    /// Holds everything, in both directions.
    Hole,
}

/// A proxy that ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Proxy {
    address: SocketAddr,
    mode: watch::Sender<Mode>,
    cut: broadcast::Sender<()>,
    accepting: JoinHandle<()>,
}

impl Proxy {
    /// Starts one before the server at this address.
    pub(crate) async fn before(server: String) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("bound");
        let (mode, modes) = watch::channel(Mode::Forward);
        let (cut, _) = broadcast::channel(1);
        let cuts = cut.clone();
        let accepting = tokio::spawn(async move {
            while let Ok((near, _)) = listener.accept().await {
                tokio::spawn(connect(near, server.clone(), modes.clone(), cuts.subscribe()));
            }
        });
        Self { address, mode, cut, accepting }
    }

    pub(crate) fn address(&self) -> String {
        self.address.to_string()
    }

    /// From now on the server is heard by nobody, but hears all.
    pub(crate) fn mute(&self) {
        self.mode.send_replace(Mode::Mute);
    }

    /// From now on nothing goes through, and nobody is told.
    pub(crate) fn hole(&self) {
        self.mode.send_replace(Mode::Hole);
    }

    /// Everything goes through again, with what was held back.
    pub(crate) fn forward(&self) {
        self.mode.send_replace(Mode::Forward);
    }

    /// Ends all connections; later ones go through.
    pub(crate) fn cut(&self) {
        let _ = self.cut.send(());
        self.forward();
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.accepting.abort();
        let _ = self.cut.send(());
    }
}

async fn connect(
    near: TcpStream,
    server: String,
    mode: watch::Receiver<Mode>,
    mut cut: broadcast::Receiver<()>,
) {
    let Ok(far) = TcpStream::connect(server).await else { return };
    let _ = (near.set_nodelay(true), far.set_nodelay(true));
    let ((near_in, near_out), (far_in, far_out)) = (near.into_split(), far.into_split());
    tokio::select! {
        () = pass(near_in, far_out, mode.clone(), false) => {}
        () = pass(far_in, near_out, mode, true) => {}
        _ = cut.recv() => {}
    }
}

async fn pass(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    mut mode: watch::Receiver<Mode>,
    is_server: bool,
) {
    let mut buffer = vec![0; 64 << 10];
    while let Ok(count @ 1..) = from.read(&mut buffer).await {
        let Ok(now) = mode.wait_for(|mode| *mode != Mode::Hole).await.map(|mode| *mode) else {
            return;
        };
        if is_server && now == Mode::Mute {
            continue;
        }
        if to.write_all(&buffer[..count]).await.is_err() {
            return;
        }
    }
}
