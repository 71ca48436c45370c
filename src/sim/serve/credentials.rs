//! Who the embedded cluster is, and who may rule it: a CA, the administrator's token, the key that signs
//! service accounts' tokens. Kept in the cluster's directory, so that a kubeconfig stays good over restarts.

use std::{
    fmt, fs,
    io::{self, Write},
    net::{IpAddr, Ipv4Addr, SocketAddr},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    sync::Arc,
};

use base64::{Engine, engine::general_purpose::STANDARD};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use rustls::{
    ServerConfig,
    crypto::ring,
    pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer},
};
use sha2::{Digest, Sha256};

use super::ServeError;

const CA_CERTIFICATE: &str = "ca.crt";
const CA_KEY: &str = "ca.key";
const SECRET: &str = "secret";

/// The CA and the secrets.
pub struct Credentials {
    ca_certificate: String,
    ca_key: KeyPair,
    /// What tokens and keys derive from.
    secret: [u8; 32],
    kept: bool,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Credentials")
            .field("kept", &self.kept)
            .finish_non_exhaustive()
    }
}

impl Credentials {
    /// Those of a directory, made on first use; without a directory new ones every time.
    pub fn prepare(directory: Option<&Path>) -> Result<Self, ServeError> {
        let Some(directory) = directory else {
            let (ca_certificate, ca_key) = new_ca()?;
            return Ok(Self {
                ca_certificate,
                ca_key,
                secret: random()?,
                kept: false,
            });
        };
        let (certificate_path, key_path) = (directory.join(CA_CERTIFICATE), directory.join(CA_KEY));
        let (ca_certificate, ca_key) = match (read(&certificate_path)?, read(&key_path)?) {
            (Some(certificate), Some(key)) => {
                let unusable = |message: String| ServeError::Ca {
                    path: certificate_path.clone(),
                    message,
                };
                let text = |bytes| String::from_utf8(bytes).map_err(|error| unusable(error.to_string()));
                let (certificate, key) = (text(certificate)?, text(key)?);
                let key = KeyPair::from_pem(&key).map_err(|error| unusable(error.to_string()))?;
                let copy =
                    KeyPair::from_pem(&key.serialize_pem()).map_err(|error| unusable(error.to_string()))?;
                Issuer::from_ca_cert_pem(&certificate, copy).map_err(|error| unusable(error.to_string()))?;
                (certificate, key)
            }
            _ => {
                let (certificate, key) = new_ca()?;
                write_private(&key_path, key.serialize_pem().as_bytes())?;
                write_private(&certificate_path, certificate.as_bytes())?;
                (certificate, key)
            }
        };
        let secret_path = directory.join(SECRET);
        let secret = match read(&secret_path)?.and_then(|bytes| bytes.try_into().ok()) {
            Some(secret) => secret,
            None => {
                let secret = random()?;
                write_private(&secret_path, &secret)?;
                secret
            }
        };
        Ok(Self {
            ca_certificate,
            ca_key,
            secret,
            kept: true,
        })
    }

    /// The administrator's bearer token.
    #[must_use]
    pub fn admin_token(&self) -> String {
        self.derive(b"admin")
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect()
    }

    /// The key that signs service accounts' tokens.
    #[must_use]
    pub fn token_key(&self) -> [u8; 32] {
        self.derive(b"service accounts")
    }

    fn derive(&self, purpose: &[u8]) -> [u8; 32] {
        Sha256::new()
            .chain_update(self.secret)
            .chain_update(purpose)
            .finalize()
            .into()
    }

    /// The CA certificate that goes into every namespace. One that is made anew each time does not: the
    /// same seed must give the same objects.
    #[must_use]
    pub fn ca_for_namespaces(&self) -> Arc<str> {
        if self.kept {
            self.ca_certificate.as_str().into()
        } else {
            "".into()
        }
    }

    /// TLS for a server on this address.
    pub(super) fn server_config(&self, address: IpAddr) -> Result<ServerConfig, ServeError> {
        let failed = |message: String| ServeError::Certificate { message };
        let mut names: Vec<String> = [
            "localhost",
            "127.0.0.1",
            "::1",
            "kubernetes",
            "kubernetes.default",
            "kubernetes.default.svc",
            "10.96.0.1",
        ]
        .map(str::to_owned)
        .to_vec();
        if !address.is_unspecified() {
            names.push(address.to_string());
        }
        let mut parameters = CertificateParams::new(names).map_err(|error| failed(error.to_string()))?;
        parameters
            .distinguished_name
            .push(DnType::CommonName, "freehold embedded cluster");
        parameters.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        parameters.use_authority_key_identifier_extension = true;
        let key = KeyPair::generate().map_err(|error| failed(error.to_string()))?;
        let issuer = Issuer::from_ca_cert_pem(&self.ca_certificate, &self.ca_key)
            .map_err(|error| failed(error.to_string()))?;
        let certificate = parameters
            .signed_by(&key, &issuer)
            .map_err(|error| failed(error.to_string()))?;
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .and_then(|builder| {
                builder
                    .with_no_client_auth()
                    .with_single_cert(vec![certificate.der().clone()], key)
            })
            .map_err(|error| failed(error.to_string()))?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(config)
    }

    /// Writes the administrator's kubeconfig, for its owner's eyes only.
    pub fn write_kubeconfig(&self, server: SocketAddr, path: &Path) -> Result<(), ServeError> {
        let host = match server.ip() {
            ip if ip.is_unspecified() => SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), server.port()),
            _ => server,
        };
        let (ca, token) = (STANDARD.encode(&self.ca_certificate), self.admin_token());
        let content = format!(
            "# The embedded cluster of freehold: simulated, for trying things out.\n\
             apiVersion: v1\nkind: Config\ncurrent-context: embedded\n\
             clusters:\n- name: embedded\n  cluster:\n    server: https://{host}\n    certificate-authority-data: {ca}\n\
             users:\n- name: embedded-admin\n  user:\n    token: {token}\n\
             contexts:\n- name: embedded\n  context:\n    cluster: embedded\n    user: embedded-admin\n    namespace: default\n"
        );
        if let Some(parent) = path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
            fs::create_dir_all(parent).map_err(failed("make", parent))?;
        }
        write_private(path, content.as_bytes())
    }
}

fn new_ca() -> Result<(String, KeyPair), ServeError> {
    let failed = |error: rcgen::Error| ServeError::Certificate {
        message: error.to_string(),
    };
    let key = KeyPair::generate().map_err(failed)?;
    let mut parameters = CertificateParams::new(Vec::<String>::new()).map_err(failed)?;
    parameters.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    parameters.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    parameters
        .distinguished_name
        .push(DnType::CommonName, "freehold embedded CA");
    let certificate = parameters.self_signed(&key).map_err(failed)?;
    Ok((certificate.pem(), key))
}

fn random() -> Result<[u8; 32], ServeError> {
    let mut bytes = [0; 32];
    ring::default_provider()
        .secure_random
        .fill(&mut bytes)
        .map_err(|_| ServeError::Certificate {
            message: "the system gives no random numbers".into(),
        })?;
    Ok(bytes)
}

fn read(path: &Path) -> Result<Option<Vec<u8>>, ServeError> {
    match fs::read(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(failed("read", path)(error)),
    }
}

/// Replaces a file in one step; only its owner may read it.
fn write_private(path: &Path, content: &[u8]) -> Result<(), ServeError> {
    let mut unfinished = path.as_os_str().to_owned();
    unfinished.push(".new");
    let unfinished = PathBuf::from(unfinished);
    match fs::remove_file(&unfinished) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(failed("replace", &unfinished)(error)),
    }
    let mut options = fs::OpenOptions::new();
    let mut file = options
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&unfinished)
        .map_err(failed("make", &unfinished))?;
    file.write_all(content)
        .and_then(|()| file.sync_all())
        .map_err(failed("write", &unfinished))?;
    fs::rename(&unfinished, path).map_err(failed("replace", path))
}

fn failed(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> ServeError {
    let path = path.to_owned();
    move |source| ServeError::File { action, path, source }
}
