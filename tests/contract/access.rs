//! Who one is and what one may: tokens, reviews, refusals.

use k8s_openapi::api::{
    authentication::v1::{TokenRequest, TokenRequestSpec, TokenReview},
    authorization::v1::SelfSubjectAccessReview,
    core::v1::{ConfigMap, Node, ServiceAccount},
    rbac::v1::{Role, RoleBinding},
};
use kube::{
    Api,
    api::{ListParams, PostParams},
};
use serde_json::{Value, json};

use super::world::{World, eventually, object, refusal};

fn post() -> PostParams {
    PostParams::default()
}

async fn token(world: &World, audiences: &[&str]) -> String {
    let accounts = world.api::<ServiceAccount>();
    if accounts.get_opt("visitor").await.unwrap().is_none() {
        let account = object(json!({"metadata": {"name": "visitor"}}));
        accounts.create(&post(), &account).await.unwrap();
    }
    let request = TokenRequest {
        spec: TokenRequestSpec {
            audiences: audiences.iter().map(|audience| (*audience).to_owned()).collect(),
            expiration_seconds: Some(600),
            ..TokenRequestSpec::default()
        },
        ..TokenRequest::default()
    };
    let answer = accounts
        .create_token_request("visitor", &post(), &request)
        .await
        .unwrap();
    let status = answer.status.unwrap();
    assert!(!status.token.is_empty());
    status.token
}

async fn review(world: &World, spec: Value) -> TokenReview {
    let wanted = object(json!({"spec": spec}));
    Api::<TokenReview>::all(world.client.clone())
        .create(&post(), &wanted)
        .await
        .unwrap()
}

pub async fn a_token_is_recognised_and_a_false_one_is_not(world: &World) {
    let token = token(world, &[]).await;
    let status = review(world, json!({"token": token})).await.status.unwrap();
    assert_eq!(status.authenticated, Some(true));
    let user = status.user.unwrap();
    let namespace = &world.namespace;
    assert_eq!(
        user.username,
        Some(format!("system:serviceaccount:{namespace}:visitor"))
    );
    let groups = user.groups.unwrap();
    for group in [
        "system:serviceaccounts",
        &format!("system:serviceaccounts:{namespace}"),
    ] {
        assert!(groups.iter().any(|held| held == group), "{group} in {groups:?}");
    }
    let mut false_one = token.clone();
    false_one.replace_range(token.len() - 6.., "AAAAAA");
    for wrong in [false_one.as_str(), "nonsense"] {
        let status = review(world, json!({"token": wrong})).await.status.unwrap();
        assert_ne!(status.authenticated, Some(true));
        assert!(
            status
                .user
                .unwrap_or_default()
                .username
                .is_none_or(|name| name.is_empty())
        );
    }
}

pub async fn a_token_is_good_for_its_audience_only(world: &World) {
    let token = token(world, &["freehold"]).await;
    let status = review(world, json!({"token": token, "audiences": ["freehold", "other"]}))
        .await
        .status
        .unwrap();
    assert_eq!(status.authenticated, Some(true));
    assert_eq!(status.audiences, Some(vec!["freehold".to_owned()]));
    let status = review(world, json!({"token": token, "audiences": ["other"]}))
        .await
        .status
        .unwrap();
    assert_ne!(status.authenticated, Some(true));
    let status = review(world, json!({"token": token})).await.status.unwrap();
    assert_ne!(
        status.authenticated,
        Some(true),
        "the API server is not its audience"
    );
}

pub async fn a_token_for_nobody_is_refused(world: &World) {
    let accounts = world.api::<ServiceAccount>();
    let refused = refusal(
        accounts
            .create_token_request("nobody", &post(), &TokenRequest::default())
            .await,
    );
    assert_eq!((refused.code, refused.reason.as_str()), (404, "NotFound"));
}

pub async fn who_may_not_is_refused_and_told_what(world: &World) {
    let visitor = world.log_in(&token(world, &[]).await).await;
    let namespace = &world.namespace;
    let maps = Api::<ConfigMap>::namespaced(visitor.clone(), namespace);
    let refused = refusal(maps.get("one").await);
    assert_eq!((refused.code, refused.reason.as_str()), (403, "Forbidden"));
    assert_eq!(
        refused.message,
        format!(
            "configmaps \"one\" is forbidden: User \"system:serviceaccount:{namespace}:visitor\" cannot get \
             resource \"configmaps\" in API group \"\" in the namespace \"{namespace}\""
        )
    );
    let refused = refusal(
        Api::<Node>::all(visitor.clone())
            .list(&ListParams::default())
            .await,
    );
    assert_eq!(
        refused.message,
        format!(
            "nodes is forbidden: User \"system:serviceaccount:{namespace}:visitor\" cannot list resource \
             \"nodes\" in API group \"\" at the cluster scope"
        )
    );
    // Once a role says so, it may.
    let role: Role = object(json!({"metadata": {"name": "reader"}, "rules": [
        {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list"]},
    ]}));
    world.api::<Role>().create(&post(), &role).await.unwrap();
    let binding: RoleBinding = object(json!({
        "metadata": {"name": "reader"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "reader"},
        "subjects": [{"kind": "ServiceAccount", "name": "visitor", "namespace": namespace}],
    }));
    world
        .api::<RoleBinding>()
        .create(&post(), &binding)
        .await
        .unwrap();
    eventually("the role takes effect", || async {
        maps.list(&ListParams::default()).await.ok()
    })
    .await;
    let forbidden = maps
        .create(&post(), &object(json!({"metadata": {"name": "one"}})))
        .await;
    assert_eq!(refusal(forbidden).code, 403);
}

pub async fn a_false_token_is_not_let_in(world: &World) {
    let nobody = world.log_in("nonsense").await;
    let refused = refusal(
        Api::<ConfigMap>::namespaced(nobody, &world.namespace)
            .get("one")
            .await,
    );
    assert_eq!((refused.code, refused.reason.as_str()), (401, "Unauthorized"));
}

pub async fn one_can_ask_what_one_may(world: &World) {
    let visitor = world.log_in(&token(world, &[]).await).await;
    let question: SelfSubjectAccessReview = object(json!({"spec": {"resourceAttributes": {
        "namespace": world.namespace, "verb": "create", "resource": "configmaps",
    }}}));
    for (client, allowed) in [(world.client.clone(), true), (visitor, false)] {
        let answer = Api::<SelfSubjectAccessReview>::all(client)
            .create(&post(), &question)
            .await
            .unwrap();
        assert_eq!(answer.status.unwrap().allowed, allowed);
    }
}
