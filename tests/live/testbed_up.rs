//! `make testbed-up`: a control plane to play with, until Ctrl-C. `NODES=n` gives it nodes, half of them with GPUs.

#![expect(clippy::panic, reason = "what cannot go on says why and ends")]
#![expect(dead_code, reason = "the tests use the rest")]

use std::io::Write as _;

use control_plane::ControlPlane;
use nodes::NodeShape;
use options::Options;

#[path = "accounts.rs"]
mod accounts;
#[path = "certificates.rs"]
mod certificates;
#[path = "control_plane.rs"]
mod control_plane;
#[path = "etcd.rs"]
mod etcd;
#[path = "leash.rs"]
mod leash;
#[path = "nodes.rs"]
mod nodes;
#[path = "options.rs"]
mod options;
#[path = "programs.rs"]
mod programs;
#[path = "reserved_port.rs"]
mod reserved_port;
#[path = "waiting.rs"]
mod waiting;

#[tokio::main]
async fn main() -> Result<(), String> {
    let nodes = match std::env::args().nth(1).as_deref() {
        None | Some("") => 3,
        Some(number) => number
            .parse()
            .map_err(|_| format!("{number:?} is not a number of nodes"))?,
    };
    let interrupted = tokio::signal::ctrl_c();
    tokio::pin!(interrupted);
    let starting = async {
        let plane = ControlPlane::start(Options::full()).await?;
        let shapes: Vec<NodeShape> = (0..nodes).map(shape).collect();
        plane.add_nodes(&shapes).await;
        Ok::<_, String>(plane)
    };
    let plane = tokio::select! {
        plane = starting => plane?,
        _ = &mut interrupted => return Ok(()),
    };
    let kubectl = plane.program("kubectl");
    writeln!(
        std::io::stdout(),
        "A Kubernetes control plane with {nodes} KWOK nodes is up; everything of it is in {}.\n\n  \
         export KUBECONFIG={}\n  {} get nodes\n\nCtrl-C ends it and removes everything.",
        plane.directory().display(),
        plane.kubeconfig().display(),
        kubectl.display(),
    )
    .map_err(|error| error.to_string())?;
    let _ = interrupted.await;
    Ok(())
}

fn shape(number: usize) -> NodeShape {
    let shape = NodeShape::new(&format!("node-{number}"));
    if number.is_multiple_of(2) {
        shape
    } else {
        shape.resource("nvidia.com/gpu", "8")
    }
}
