//! TLS: client certificates, files that change, a CA of our own.

use std::{path::Path, sync::Arc, time::Duration};

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, date_time_ymd,
};
use tonic::{
    Code,
    metadata::MetadataValue,
    transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity as ClientIdentity},
};

use super::fakes::{SteeredClock, World, get};
use crate::api::{
    proto::v1::{GetStatusRequest, status_service_client::StatusServiceClient},
    server::{Options, Running, Server, StartError},
    tls::{CertificateFiles, Tls, TlsOptions},
};

struct Ca {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

impl Ca {
    fn new(name: &str) -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        Self {
            issuer: Issuer::new(params, key),
            pem,
        }
    }

    fn server(&self) -> (String, String) {
        let mut params = CertificateParams::new(vec!["localhost".into(), "127.0.0.1".into()]).unwrap();
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        self.sign(&params)
    }

    fn client(&self, role: &str, name: &str, until: i32) -> (String, String) {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        params.distinguished_name = DistinguishedName::new();
        params
            .distinguished_name
            .push(DnType::OrganizationalUnitName, role);
        params.distinguished_name.push(DnType::CommonName, name);
        params.not_before = date_time_ymd(2000, 1, 1);
        params.not_after = date_time_ymd(until, 1, 1);
        self.sign(&params)
    }

    fn sign(&self, params: &CertificateParams) -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        (certificate.pem(), key.serialize_pem())
    }
}

fn files(directory: &Path, server: &(String, String), client_ca: &Ca) -> TlsOptions {
    let certificate = directory.join("tls.crt");
    let key = directory.join("tls.key");
    let ca = directory.join("client-ca.crt");
    std::fs::write(&certificate, &server.0).unwrap();
    std::fs::write(&key, &server.1).unwrap();
    std::fs::write(&ca, &client_ca.pem).unwrap();
    TlsOptions {
        certificate: Some(CertificateFiles { certificate, key }),
        client_ca: Some(ca),
        names: vec![],
        own_ca_file: None,
        reload_every: Duration::from_millis(10),
    }
}

fn secured(tls: TlsOptions) -> Options {
    let mut options = Options::loopback();
    options.tls = Some(tls);
    options
}

async fn connect(
    server: &Running,
    server_ca: &str,
    identity: Option<(String, String)>,
) -> Result<Channel, tonic::transport::Error> {
    let mut tls = ClientTlsConfig::new()
        .ca_certificate(Certificate::from_pem(server_ca))
        .domain_name("localhost");
    if let Some((certificate, key)) = identity {
        tls = tls.identity(ClientIdentity::from_pem(certificate, key));
    }
    let port = server.grpc_address.unwrap().port();
    Endpoint::from_shared(format!("https://localhost:{port}"))
        .unwrap()
        .tls_config(tls)
        .unwrap()
        .connect()
        .await
}

async fn ask(
    server: &Running,
    server_ca: &str,
    identity: Option<(String, String)>,
) -> Result<(), tonic::Status> {
    let channel = connect(server, server_ca, identity)
        .await
        .map_err(|error| tonic::Status::unavailable(error.to_string()))?;
    StatusServiceClient::new(channel)
        .get(GetStatusRequest {})
        .await
        .map(|_| ())
}

#[tokio::test]
async fn a_client_certificate_proves_role_and_subject() {
    let directory = tempfile::tempdir().unwrap();
    let (servers, clients) = (Ca::new("servers"), Ca::new("clients"));
    let world = World::new();
    let options = secured(files(directory.path(), &servers.server(), &clients));
    let server = world.start(options).await;
    let try_as = |role: &str, name: &str| ask(&server, &servers.pem, Some(clients.client(role, name, 2090)));
    assert!(try_as("operator", "root").await.is_ok());
    assert!(try_as("marketplace", "akash").await.is_ok());
    assert_eq!(
        try_as("tenant", "alice").await.unwrap_err().code(),
        Code::PermissionDenied
    );
    assert_eq!(
        try_as("king", "alice").await.unwrap_err().code(),
        Code::Unauthenticated
    );
    assert_eq!(
        try_as("tenant", "").await.unwrap_err().code(),
        Code::Unauthenticated
    );
    let nobody = ask(&server, &servers.pem, None).await.unwrap_err();
    assert_eq!(nobody.code(), Code::Unauthenticated);
}

#[tokio::test]
async fn a_certificate_of_another_ca_or_past_its_time_does_not_get_in() {
    let directory = tempfile::tempdir().unwrap();
    let (servers, clients, strangers) = (Ca::new("servers"), Ca::new("clients"), Ca::new("clients"));
    let world = World::new();
    let server = world
        .start(secured(files(directory.path(), &servers.server(), &clients)))
        .await;
    let refused = [
        (
            "another CA with the same name",
            strangers.client("operator", "root", 2090),
        ),
        ("expired", clients.client("operator", "root", 2001)),
        ("the server's CA", servers.client("operator", "root", 2090)),
        ("a server's certificate", clients.server()),
    ];
    for (what, identity) in refused {
        let error = ask(&server, &servers.pem, Some(identity)).await.unwrap_err();
        assert!(
            matches!(error.code(), Code::Unavailable | Code::Unknown),
            "{what}: {error:?}"
        );
    }
    assert!(
        ask(&server, &strangers.pem, None).await.is_err(),
        "the client checks the server"
    );
    assert!(
        ask(
            &server,
            &servers.pem,
            Some(clients.client("operator", "root", 2090))
        )
        .await
        .is_ok()
    );
}

#[tokio::test]
async fn plain_http_does_not_get_through_tls() {
    let directory = tempfile::tempdir().unwrap();
    let (servers, clients) = (Ca::new("servers"), Ca::new("clients"));
    let world = World::new();
    let server = world
        .start(secured(files(directory.path(), &servers.server(), &clients)))
        .await;
    assert_eq!(get(server.http_address.unwrap(), "/livez").await.status, 0);
}

#[tokio::test]
async fn a_certificate_that_ends_while_its_connection_is_open_proves_nothing_more() {
    let directory = tempfile::tempdir().unwrap();
    let (servers, clients) = (Ca::new("servers"), Ca::new("clients"));
    let clock = SteeredClock::at("2029-12-31T23:59:59Z");
    let world = World::with_clock(clock.clone());
    let server = world
        .start(secured(files(directory.path(), &servers.server(), &clients)))
        .await;
    let identity = clients.client("operator", "root", 2030);
    let channel = connect(&server, &servers.pem, Some(identity)).await.unwrap();
    let mut client = StatusServiceClient::new(channel);
    assert!(client.get(GetStatusRequest {}).await.is_ok());
    clock.set("2030-01-01T00:00:00Z");
    let refused = client.get(GetStatusRequest {}).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unauthenticated);
}

#[tokio::test]
async fn half_written_files_leave_the_old_ones_in_force() {
    let directory = tempfile::tempdir().unwrap();
    let (old, new, clients) = (Ca::new("old"), Ca::new("new"), Ca::new("clients"));
    let world = World::new();
    let options = files(directory.path(), &old.server(), &clients);
    let tls = Tls::load(options, world.keeper.as_ref(), world.clock.clone())
        .await
        .unwrap();
    let before = tls.current();
    let (certificate, key) = new.server();
    let write = |name: &str, content: &str| std::fs::write(directory.path().join(name), content).unwrap();
    for content in [certificate.as_str(), "rubbish", ""] {
        write("tls.crt", content);
        tls.look_again().await;
        assert!(Arc::ptr_eq(&tls.current(), &before), "{content}");
    }
    std::fs::remove_file(directory.path().join("tls.crt")).unwrap();
    tls.look_again().await;
    assert!(Arc::ptr_eq(&tls.current(), &before), "no file at all");
    write("tls.crt", &certificate);
    write("tls.key", &key);
    tls.look_again().await;
    let after = tls.current();
    assert!(!Arc::ptr_eq(&after, &before));
    tls.look_again().await;
    assert!(Arc::ptr_eq(&tls.current(), &after), "nothing has changed since");
}

#[tokio::test]
async fn a_certificate_of_our_own_is_made_anew_long_before_it_ends() {
    let clock = SteeredClock::at("2026-01-01T00:00:00Z");
    let world = World::with_clock(clock.clone());
    let options = TlsOptions {
        certificate: None,
        client_ca: None,
        names: vec![],
        own_ca_file: None,
        reload_every: Duration::from_secs(5),
    };
    let tls = Tls::load(options, world.keeper.as_ref(), world.clock.clone())
        .await
        .unwrap();
    let first = tls.current();
    clock.set("2026-08-01T00:00:00Z");
    tls.look_again().await;
    assert!(Arc::ptr_eq(&tls.current(), &first), "still young");
    clock.set("2026-10-01T00:00:00Z");
    tls.look_again().await;
    assert!(!Arc::ptr_eq(&tls.current(), &first));
}

#[tokio::test]
async fn changed_files_come_into_force() {
    let directory = tempfile::tempdir().unwrap();
    let (old, new, clients) = (Ca::new("old"), Ca::new("new"), Ca::new("clients"));
    let world = World::new();
    let server = world
        .start(secured(files(directory.path(), &old.server(), &clients)))
        .await;
    let operator = clients.client("operator", "root", 2090);
    let try_with = |ca: &Ca| {
        let pem = ca.pem.clone();
        let operator = operator.clone();
        let server = &server;
        async move { ask(server, &pem, Some(operator)).await }
    };
    assert!(try_with(&old).await.is_ok());

    let (certificate, key) = new.server();
    std::fs::write(directory.path().join("tls.crt"), &certificate).unwrap();
    std::fs::write(directory.path().join("tls.key"), &key).unwrap();
    wait_until(|| async { try_with(&new).await.is_ok() }).await;
    assert!(try_with(&old).await.is_err());

    // A new client CA shuts out the certificates of the old one.
    let other = Ca::new("other clients");
    std::fs::write(directory.path().join("client-ca.crt"), &other.pem).unwrap();
    wait_until(|| async { try_with(&new).await.is_err() }).await;
    let welcome = other.client("operator", "root", 2090);
    assert!(ask(&server, &new.pem, Some(welcome)).await.is_ok());
}

async fn wait_until<F: Future<Output = bool>>(condition: impl Fn() -> F) {
    let deadline = tokio::time::timeout(Duration::from_secs(20), async {
        while !condition().await {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    });
    deadline.await.unwrap();
}

#[tokio::test]
async fn files_that_cannot_be_used_stop_the_start() {
    let directory = tempfile::tempdir().unwrap();
    let ca = Ca::new("ca");
    let world = World::new();
    let good = files(directory.path(), &ca.server(), &ca);
    let broken: [(&str, &str, &str); 5] = [
        ("tls.crt", "rubbish", "api.tls.cert"),
        ("tls.key", "", "api.tls.key"),
        ("tls.key", &ca.server().1, "cannot be used together"),
        ("client-ca.crt", "rubbish", "api.tls.client-ca"),
        (
            "client-ca.crt",
            "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
            "api.tls.client-ca",
        ),
    ];
    for (file, content, named) in broken {
        let path = directory.path().join(file);
        let before = std::fs::read(&path).unwrap();
        std::fs::write(&path, content).unwrap();
        let error = Server::start(secured(good.clone()), world.parts())
            .await
            .unwrap_err();
        assert!(
            matches!(error, StartError::Tls(_)) && error.is_configuration(),
            "{error}"
        );
        assert!(error.to_string().contains(named), "{error}");
        std::fs::write(&path, before).unwrap();
    }
    std::fs::remove_file(directory.path().join("tls.crt")).unwrap();
    let error = Server::start(secured(good), world.parts()).await.unwrap_err();
    assert!(error.to_string().contains("api.tls.cert"), "{error}");
}

fn own(directory: &Path) -> Options {
    let mut options = secured(TlsOptions {
        certificate: None,
        client_ca: None,
        names: vec!["provider.example".into()],
        own_ca_file: Some(directory.join("ca.crt")),
        reload_every: Duration::from_secs(5),
    });
    options.grpc = ([0, 0, 0, 0], 0).into();
    options.bootstrap_token_file = Some(directory.join("operator.token"));
    options
}

#[tokio::test]
async fn without_a_certificate_the_program_makes_its_own_and_a_token_to_begin_with() {
    use std::os::unix::fs::PermissionsExt as _;

    let directory = tempfile::tempdir().unwrap();
    let world = World::new();
    let server = world.start(own(directory.path())).await;
    let ca = std::fs::read_to_string(directory.path().join("ca.crt")).unwrap();
    assert_eq!(server.own_ca_pem(), Some(ca.as_str()));
    assert!(!ca.contains("PRIVATE"));
    let file = directory.path().join("operator.token");
    let mode = std::fs::metadata(&file).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let token = std::fs::read_to_string(&file).unwrap();

    let with_token = |server: Running, ca: String, token: String| async move {
        let channel = connect(&server, &ca, None).await.unwrap();
        let mut request = tonic::Request::new(GetStatusRequest {});
        let value = MetadataValue::try_from(format!("Bearer {}", token.trim())).unwrap();
        request.metadata_mut().insert("authorization", value);
        StatusServiceClient::new(channel).get(request).await.map(|_| ())
    };
    assert_eq!(
        ask(&server, &ca, None).await.unwrap_err().code(),
        Code::Unauthenticated
    );
    with_token(server, ca.clone(), token.clone()).await.unwrap();

    // A second start has the same CA, the same token, and writes no other.
    let server = world.start(own(directory.path())).await;
    assert_eq!(std::fs::read_to_string(&file).unwrap(), token);
    with_token(server, ca, token).await.unwrap();
}

#[tokio::test]
async fn a_damaged_ca_of_our_own_is_not_replaced_in_silence() {
    let directory = tempfile::tempdir().unwrap();
    let world = World::new();
    let kept = crate::domain::secret::Secret::new("rubbish".into());
    world.keeper.kept.lock().insert("api/own-ca", kept.clone());
    let error = Server::start(own(directory.path()), world.parts())
        .await
        .unwrap_err();
    assert!(error.to_string().contains("makes no sense"), "{error}");
    assert_eq!(world.keeper.kept.lock().get("api/own-ca"), Some(&kept));
}
