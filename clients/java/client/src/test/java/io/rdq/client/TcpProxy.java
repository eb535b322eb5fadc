package io.rdq.client;

import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.io.UncheckedIOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;

/** A network between client and server that can hold bytes back and lose connections. */
final class TcpProxy implements AutoCloseable {
  /** One direction: bytes wait at it while it is shut. */
  private static final class Gate {
    private boolean isShut;

    synchronized void set(boolean shut) {
      isShut = shut;
      notifyAll();
    }

    synchronized void pass() throws InterruptedException {
      while (isShut) {
        wait();
      }
    }
  }

  private final int serverPort;
  private final ServerSocket listener;
  private final Set<Socket> sockets = ConcurrentHashMap.newKeySet();
  private final Gate up = new Gate();
  private final Gate down = new Gate();

  TcpProxy(int serverPort) {
    this.serverPort = serverPort;
    try {
      listener = new ServerSocket(0, 50, InetAddress.getLoopbackAddress());
    } catch (IOException error) {
      throw new UncheckedIOException(error);
    }
    spawn(this::accept);
  }

  String address() {
    return "127.0.0.1:" + listener.getLocalPort();
  }

  /** Holds back what the client sends, or lets it go. */
  void holdUp(boolean hold) {
    up.set(hold);
  }

  /** Holds back what the server sends, or lets it go. */
  void holdDown(boolean hold) {
    down.set(hold);
  }

  /** Loses all connections, and what is held back of them. */
  void cut() {
    sockets.forEach(TcpProxy::closeQuietly);
    sockets.clear();
  }

  @Override
  public void close() {
    try {
      listener.close();
    } catch (IOException error) {
      throw new UncheckedIOException(error);
    }
    cut();
    up.set(false);
    down.set(false);
  }

  private void accept() {
    while (true) {
      try {
        Socket client = listener.accept();
        sockets.add(client);
        try {
          Socket server = new Socket(InetAddress.getLoopbackAddress(), serverPort);
          sockets.add(server);
          client.setTcpNoDelay(true);
          server.setTcpNoDelay(true);
          spawn(() -> copy(client, server, up));
          spawn(() -> copy(server, client, down));
        } catch (IOException refused) {
          closeQuietly(client);
        }
      } catch (IOException closed) {
        return;
      }
    }
  }

  private static void copy(Socket from, Socket to, Gate gate) {
    byte[] buffer = new byte[64 << 10];
    try {
      InputStream in = from.getInputStream();
      OutputStream out = to.getOutputStream();
      int count;
      while ((count = in.read(buffer)) > 0) {
        gate.pass();
        out.write(buffer, 0, count);
      }
    } catch (IOException | InterruptedException lost) {
      // As connections are.
    } finally {
      closeQuietly(from);
      closeQuietly(to);
    }
  }

  private static void closeQuietly(Socket socket) {
    try {
      socket.close();
    } catch (IOException ignored) {
      // It is gone, which is what was wanted.
    }
  }

  private static void spawn(Runnable run) {
    Thread thread = new Thread(run, "tcp-proxy");
    thread.setDaemon(true);
    thread.start();
  }
}
