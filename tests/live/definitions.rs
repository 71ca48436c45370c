//! Custom resource definitions, loaded from YAML as their projects publish it.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use serde_json::Value;

use super::{control_plane::ControlPlane, waiting::eventually};

impl ControlPlane {
    /// Loads the definitions among the documents of a YAML text and waits until they are served. Says which they
    /// were. Everything else in the text is left out, and so are conversion webhooks, which nobody serves here.
    pub async fn load_definitions(&self, yaml: &str) -> Vec<String> {
        let options = serde_saphyr::options! { budget: None }; // files of ours, some of them megabytes
        let documents: Vec<Option<Value>> =
            serde_saphyr::from_multiple_with_options(yaml, options).expect("YAML");
        let definitions = Api::<CustomResourceDefinition>::all(self.client().await);
        let mut names = Vec::new();
        for mut document in documents.into_iter().flatten() {
            if document.get("kind").and_then(Value::as_str) != Some("CustomResourceDefinition") {
                continue;
            }
            let name = document
                .pointer("/metadata/name")
                .and_then(Value::as_str)
                .expect("a definition with a name")
                .to_owned();
            if let Some(spec) = document.get_mut("spec").and_then(Value::as_object_mut) {
                spec.remove("conversion");
            }
            if let Some(document) = document.as_object_mut() {
                document.remove("status");
            }
            // Applied, as some are too large for kubectl's annotation, and may be loaded twice.
            definitions
                .patch(
                    &name,
                    &PatchParams::apply("testbed").force(),
                    &Patch::Apply(&document),
                )
                .await
                .unwrap_or_else(|error| panic!("the API server refuses {name}: {error}"));
            names.push(name);
        }
        for name in &names {
            eventually("the definition is established", || async {
                let definition = definitions.get(name).await.ok()?;
                let conditions = definition.status?.conditions?;
                conditions
                    .iter()
                    .any(|condition| condition.type_ == "Established" && condition.status == "True")
                    .then_some(())
            })
            .await;
        }
        names
    }
}
