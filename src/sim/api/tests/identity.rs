use std::time::Duration;

use k8s_openapi::api::{
    authentication::v1::{SelfSubjectReview, TokenRequest, TokenReview},
    authorization::v1::SelfSubjectAccessReview,
    core::v1::ServiceAccount,
};

use super::*;

async fn token(world: &World, spec: Value) -> Result<String, kube::Error> {
    let request: TokenRequest = typed(json!({"spec": spec}));
    let answer = world
        .here::<ServiceAccount>()
        .create_token_request("robot", &params(), &request)
        .await?;
    Ok(answer.status.unwrap().token)
}

async fn prepare(world: &World) {
    world
        .here::<ServiceAccount>()
        .create(&params(), &typed(json!({"metadata": {"name": "robot"}})))
        .await
        .unwrap();
    let node = json!({"metadata": {"name": "n1"}});
    world
        .api
        .objects
        .create(&Resource::new("", "nodes"), node)
        .unwrap();
    let mut pod = serde_json::to_value(pod("p")).unwrap();
    pod["spec"]["serviceAccountName"] = json!("robot");
    pod["spec"]["nodeName"] = json!("n1");
    world.here::<Pod>().create(&params(), &typed(pod)).await.unwrap();
}

async fn review(world: &World, token: &str) -> k8s_openapi::api::authentication::v1::TokenReviewStatus {
    let question: TokenReview = typed(json!({"spec": {"token": token}}));
    world
        .all::<TokenReview>()
        .create(&params(), &question)
        .await
        .unwrap()
        .status
        .unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_token_is_its_accounts_until_it_expires_or_its_pod_is_gone() {
    let world = world();
    prepare(&world).await;
    let bound = json!({"boundObjectRef": {"kind": "Pod", "apiVersion": "v1", "name": "p"}, "audiences": [], "expirationSeconds": 600});
    let first = token(&world, bound.clone()).await.unwrap();
    let known = review(&world, &first).await;
    assert_eq!(known.authenticated, Some(true));
    let user = known.user.unwrap();
    assert_eq!(
        user.username.as_deref(),
        Some("system:serviceaccount:default:robot")
    );
    let extra = user.extra.unwrap();
    assert_eq!(extra["authentication.kubernetes.io/pod-name"], ["p"]);
    assert_eq!(extra["authentication.kubernetes.io/node-name"], ["n1"]);
    tokio::time::advance(Duration::from_secs(601)).await;
    assert_ne!(review(&world, &first).await.authenticated, Some(true));
    let second = token(&world, bound).await.unwrap();
    world
        .here::<Pod>()
        .delete("p", &kube::api::DeleteParams::default().grace_period(0))
        .await
        .unwrap();
    let gone = review(&world, &second).await;
    assert_ne!(gone.authenticated, Some(true));
    assert!(gone.error.unwrap().contains("is gone"));
}

#[tokio::test(start_paused = true)]
async fn a_token_that_was_tampered_with_or_is_for_others_is_worth_nothing() {
    let world = world();
    prepare(&world).await;
    let good = token(&world, json!({"audiences": []})).await.unwrap();
    let vault = token(&world, json!({"audiences": ["vault"]})).await.unwrap();
    let (head, signature) = good.rsplit_once('.').unwrap();
    for bad in [
        format!("{head}x.{signature}"),
        head.to_owned(),
        "x".to_owned(),
        vault,
    ] {
        assert_ne!(review(&world, &bad).await.authenticated, Some(true), "{bad}");
        let request = http::Request::get("/api/v1/pods").header("authorization", format!("Bearer {bad}"));
        let refused = status(
            world
                .client
                .request::<Value>(request.body(Vec::new()).unwrap())
                .await,
        );
        assert_eq!(refused.code, 401);
    }
    let short = status(token(&world, json!({"audiences": [], "expirationSeconds": 10})).await);
    assert_eq!(short.code, 422);
}

#[tokio::test(start_paused = true)]
async fn an_account_may_do_what_its_roles_allow() {
    let world = world();
    prepare(&world).await;
    let token = token(&world, json!({"audiences": []})).await.unwrap();
    let ask = async |method: &str, path: &str, body: Value| {
        let request = http::Request::builder()
            .method(method)
            .uri(path)
            .header("authorization", format!("Bearer {token}"));
        let body = if body.is_null() {
            Vec::new()
        } else {
            body.to_string().into_bytes()
        };
        world.client.request::<Value>(request.body(body).unwrap()).await
    };
    let pods = "/api/v1/namespaces/default/pods";
    let refused = status(ask("GET", pods, Value::Null).await);
    assert_eq!(refused.code, 403);
    assert_eq!(
        refused.message,
        "pods is forbidden: User \"system:serviceaccount:default:robot\" cannot list resource \"pods\" in API group \"\" in the namespace \"default\""
    );
    let rbac = "/apis/rbac.authorization.k8s.io/v1/namespaces/default";
    let role = json!({"metadata": {"name": "reader"}, "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]}]});
    world.raw("POST", &format!("{rbac}/roles"), role).await.unwrap();
    let binding = json!({"metadata": {"name": "reader"}, "roleRef": {"kind": "Role", "name": "reader"},
        "subjects": [{"kind": "ServiceAccount", "name": "robot", "namespace": "default"}]});
    world
        .raw("POST", &format!("{rbac}/rolebindings"), binding)
        .await
        .unwrap();
    ask("GET", pods, Value::Null).await.unwrap();
    assert_eq!(status(ask("GET", "/api/v1/pods", Value::Null).await).code, 403);
    let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    for (verb, allowed) in [("list", true), ("delete", false)] {
        let question = json!({"spec": {"resourceAttributes": {"verb": verb, "resource": "pods", "namespace": "default"}}});
        assert_eq!(
            ask("POST", path, question).await.unwrap()["status"]["allowed"],
            json!(allowed),
            "{verb}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn the_administrator_may_do_everything() {
    let world = world();
    let question: SelfSubjectAccessReview =
        typed(json!({"spec": {"resourceAttributes": {"verb": "delete", "resource": "nodes"}}}));
    let answer = world
        .all::<SelfSubjectAccessReview>()
        .create(&params(), &question)
        .await
        .unwrap();
    assert!(answer.status.unwrap().allowed);
    let me = world
        .all::<SelfSubjectReview>()
        .create(&params(), &SelfSubjectReview::default())
        .await
        .unwrap();
    let user = me.status.unwrap().user_info.unwrap();
    assert_eq!(user.username.as_deref(), Some("kubernetes-admin"));
}

#[tokio::test(start_paused = true)]
async fn without_credentials_a_closed_server_answers_nobody_but_the_holder_of_its_token() {
    let mut world = world();
    world.api.admit_anonymous = false;
    world.api.admin_token = Some("let-me-in".into());
    world.client = Client::new(router(world.api.clone()), "default");
    assert_eq!(
        world
            .raw("GET", "/api/v1/pods", Value::Null)
            .await
            .unwrap_err()
            .code,
        401
    );
    let request = http::Request::get("/api/v1/pods").header("authorization", "Bearer let-me-in");
    world
        .client
        .request::<Value>(request.body(Vec::new()).unwrap())
        .await
        .unwrap();
}
