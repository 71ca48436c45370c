//! What we ask of etcd itself, through its JSON gateway.

use std::{io, net::SocketAddr};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

/// The key by which API servers tell each other how far etcd is compacted.
const COMPACTED: &str = "compact_rev_key";

/// Throws away every revision before the present one.
pub async fn compact(etcd: SocketAddr) -> io::Result<()> {
    let present = call(etcd, "range", &json!({"key": STANDARD.encode(COMPACTED)})).await?;
    let revision = present
        .pointer("/header/revision")
        .and_then(Value::as_str)
        .ok_or_else(|| io::Error::other(format!("etcd gave no revision: {present}")))?
        .to_owned();
    call(
        etcd,
        "compaction",
        &json!({"revision": revision, "physical": true}),
    )
    .await?;
    let record = json!({"key": STANDARD.encode(COMPACTED), "value": STANDARD.encode(&revision)});
    call(etcd, "put", &record).await?;
    Ok(())
}

async fn call(etcd: SocketAddr, operation: &str, body: &Value) -> io::Result<Value> {
    let body = body.to_string();
    // HTTP/1.0: the answer ends with the connection.
    let request = format!(
        "POST /v3/kv/{operation} HTTP/1.0\r\nHost: {etcd}\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let mut connection = TcpStream::connect(etcd).await?;
    connection.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    connection.read_to_string(&mut answer).await?;
    match answer.split_once("\r\n\r\n") {
        Some((head, body)) if head.contains(" 200 ") => serde_json::from_str(body).map_err(io::Error::other),
        _ => Err(io::Error::other(format!("etcd refuses {operation}: {answer}"))),
    }
}
