//! `pods/exec` and `pods/attach`: channels over one WebSocket (`v5.channel.k8s.io` and `v4`).
//! A message's first byte is its channel.

use axum::{
    extract::{
        FromRequestParts,
        ws::{CloseFrame, Message, Utf8Bytes, WebSocket, WebSocketUpgrade, close_code},
    },
    response::Response,
};
use bytes::{BufMut as _, Bytes, BytesMut};
use futures::{SinkExt, StreamExt, stream::SplitSink};
use http::request::Parts;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::{
    Call,
    containers::{Exit, Session},
    logs,
};
use crate::sim::objects::{Refusal, metadata_text};

const STDIN: u8 = 0;
const STDOUT: u8 = 1;
const STDERR: u8 = 2;
const ERROR: u8 = 3;
const RESIZE: u8 = 4;
/// v5 only: the client has closed a channel.
const CLOSE: u8 = 255;

/// How many messages may wait in one channel.
const WAITING: usize = 64;

/// Answers a request to run a command or to attach.
pub async fn exec(call: &Call, parts: &mut Parts) -> Result<Response, Refusal> {
    let container = logs::container(call)?;
    let attach = call.place.subresource == "attach";
    let command: Vec<String> = call.query.every("command").map(str::to_owned).collect();
    if !attach && command.is_empty() {
        return Err(Refusal::bad_request(
            "you must specify at least one command for the container",
        ));
    }
    let phase = container.pod.pointer("/status/phase").and_then(Value::as_str);
    if matches!(phase, Some("Succeeded" | "Failed")) {
        let name = metadata_text(&container.pod, "name");
        return Err(Refusal::bad_request(format!(
            "cannot exec into a container in a completed pod; current phase of {name} is {}",
            phase.unwrap_or_default()
        )));
    }
    let upgrade = WebSocketUpgrade::from_request_parts(parts, &()).await.map_err(|rejection| {
        Refusal::bad_request(format!(
            "exec and attach need a WebSocket upgrade on a network connection (this server speaks v5.channel.k8s.io \
             and v4.channel.k8s.io): {rejection}"
        ))
    })?;
    let (stdin, tty) = (call.query.flag("stdin"), call.query.flag("tty"));
    let has_stdin = call.query.get("stdin").is_some() && stdin;
    let has_tty = call.query.get("tty").is_some() && tty;
    let containers = std::sync::Arc::clone(&call.api.containers);
    let upgrade = upgrade.protocols(["v5.channel.k8s.io", "v4.channel.k8s.io"]);
    Ok(upgrade.on_upgrade(move |socket| async move {
        let (stdin_sender, stdin) = mpsc::channel(WAITING);
        let (stdout, stdout_receiver) = mpsc::channel(WAITING);
        let (stderr, stderr_receiver) = mpsc::channel(WAITING);
        let (resize_sender, resize) = mpsc::channel(WAITING);
        let running = containers.exec(Session {
            container,
            command: (!attach).then_some(command),
            tty: has_tty,
            stdin,
            stdout,
            stderr,
            resize,
        });
        let typed = Typed {
            stdin: has_stdin.then_some(stdin_sender),
            resize: resize_sender,
        };
        converse(socket, typed, stdout_receiver, stderr_receiver, running).await;
    }))
}

/// Where what the client sends goes.
struct Typed {
    stdin: Option<mpsc::Sender<Bytes>>,
    resize: mpsc::Sender<(u16, u16)>,
}

type Running = futures::future::BoxFuture<'static, Result<Exit, Refusal>>;

/// Moves messages both ways until the command ends or the client goes.
async fn converse(
    socket: WebSocket,
    mut typed: Typed,
    mut stdout: mpsc::Receiver<Bytes>,
    mut stderr: mpsc::Receiver<Bytes>,
    mut running: Running,
) {
    let (mut sink, mut source) = socket.split();
    let mut ended = None;
    loop {
        let sent = tokio::select! {
            message = source.next(), if ended.is_none() => match message {
                Some(Ok(Message::Binary(bytes))) => {
                    typed.take(bytes).await;
                    Ok(())
                }
                Some(Ok(Message::Close(_)) | Err(_)) | None => return,
                Some(Ok(_)) => Ok(()),
            },
            Some(bytes) = stdout.recv() => send(&mut sink, STDOUT, &bytes).await,
            Some(bytes) = stderr.recv() => send(&mut sink, STDERR, &bytes).await,
            outcome = &mut running, if ended.is_none() => {
                ended = Some(outcome);
                Ok(())
            }
            // The command has ended and both streams are closed and empty.
            else => break,
        };
        if sent.is_err() {
            return;
        }
    }
    if let Some(outcome) = ended {
        let status = end_status(&outcome).to_string();
        // The client may be gone; then nobody wants to know.
        if send(&mut sink, ERROR, status.as_bytes()).await.is_ok() {
            let ended = CloseFrame {
                code: close_code::NORMAL,
                reason: Utf8Bytes::from_static(""),
            };
            sink.send(Message::Close(Some(ended))).await.ok();
            sink.close().await.ok();
        }
    }
}

impl Typed {
    async fn take(&mut self, mut message: Bytes) {
        if message.is_empty() {
            return;
        }
        let channel = message.split_to(1);
        match channel.first().copied() {
            Some(STDIN) => {
                if let Some(stdin) = &self.stdin
                    && !message.is_empty()
                    && stdin.send(message).await.is_err()
                {
                    // The command does not read any more.
                    self.stdin = None;
                }
            }
            Some(RESIZE) => {
                let size: Value = serde_json::from_slice(&message).unwrap_or_default();
                let side = |name: &str| size.get(name)?.as_u64().and_then(|side| u16::try_from(side).ok());
                if let (Some(width), Some(height)) = (side("Width"), side("Height")) {
                    // Only the newest size matters: a full queue may lose one.
                    self.resize.try_send((width, height)).ok();
                }
            }
            Some(CLOSE) if message.first() == Some(&STDIN) => self.stdin = None,
            _ => {}
        }
    }
}

async fn send(
    sink: &mut SplitSink<WebSocket, Message>,
    channel: u8,
    bytes: &[u8],
) -> Result<(), axum::Error> {
    let mut message = BytesMut::with_capacity(bytes.len() + 1);
    message.put_u8(channel);
    message.extend_from_slice(bytes);
    sink.send(Message::Binary(message.freeze())).await
}

/// What the client hears on the error channel.
fn end_status(outcome: &Result<Exit, Refusal>) -> Value {
    match outcome {
        Ok(Exit { code: 0 }) => json!({"metadata": {}, "status": "Success"}),
        Ok(Exit { code }) => json!({
            "metadata": {},
            "status": "Failure",
            "reason": "NonZeroExitCode",
            "message": format!("command terminated with non-zero exit code: exit status {code}"),
            "details": {"causes": [{"reason": "ExitCode", "message": code.to_string()}]},
        }),
        Err(refusal) => refusal.status(),
    }
}
