//! The contract, put to the real API server.

use std::sync::Arc;

use super::{
    contract_suite::{for_each_case, watches, world::World},
    control_plane::{ControlPlane, client},
    options::Options,
};

async fn world(plane: &'static ControlPlane) -> World {
    World::new(plane.client().await, login(plane)).await
}

fn login(plane: &ControlPlane) -> super::contract_suite::world::Login {
    let directory = plane.directory().to_owned();
    let admin = plane.kubeconfig();
    Arc::new(move |token| {
        let name = format!("token-{}.kubeconfig", uuid::Uuid::now_v7().simple());
        let (path, admin) = (directory.join(name), admin.clone());
        Box::pin(async move {
            let text = std::fs::read_to_string(admin).expect("the administrator's kubeconfig");
            let mut config: serde_json::Value = serde_json::from_str(&text).expect("a kubeconfig of ours");
            config["users"][0]["user"]["token"] = serde_json::Value::String(token);
            std::fs::write(&path, config.to_string()).expect("the testbed's directory");
            client(&path).await
        })
    })
}

macro_rules! live_case {
    ($module:ident::$case:ident) => {
        #[tokio::test]
        async fn $case() {
            let world = world(ControlPlane::shared().await).await;
            super::contract_suite::$module::$case(&world).await;
        }
    };
}
for_each_case!(live_case);

#[tokio::test]
async fn history_that_is_gone_answers_410() {
    let mut plane = ControlPlane::start(Options::api_only()).await.unwrap();
    let world = World::new(plane.client().await, login(&plane)).await;
    watches::history_that_is_gone_answers_410(&world, async || {
        plane.expire_history().await.unwrap();
    })
    .await;
}
