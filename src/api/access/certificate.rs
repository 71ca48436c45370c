//! An identity out of a client certificate: `OU=<role>, CN=<subject>`, exactly one of each. That the
//! certificate was signed by the client CA and is within its time has been checked by the handshake.

use jiff::Timestamp;
use rustls::pki_types::CertificateDer;
use thiserror::Error;
use x509_parser::prelude::{FromDer as _, X509Certificate};

use crate::domain::access::{Identity, IdentityError, UnknownRole};

/// Who a certificate stands for, or why nobody.
pub type CertifiedPeer = Result<CertifiedIdentity, CertificateError>;

/// An identity with an end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertifiedIdentity {
    /// Who.
    pub identity: Identity,
    /// Until when; checked at every call, because connections live long.
    pub expires_at: Timestamp,
}

/// Why a certificate stands for nobody.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum CertificateError {
    /// Not X.509.
    #[error("the client certificate cannot be read")]
    Unreadable,
    /// No role, or several.
    #[error("the client certificate needs exactly one OU, which names the role")]
    RoleMissing,
    /// No name, or several.
    #[error("the client certificate needs exactly one CN, which names the subject")]
    NameMissing,
    /// A role that does not exist.
    #[error(transparent)]
    UnknownRole(#[from] UnknownRole),
    /// A subject that does not fit the role.
    #[error(transparent)]
    Identity(#[from] IdentityError),
}

/// Reads the identity of a certificate.
///
/// # Errors
/// When it stands for nobody.
pub fn identify(certificate: &CertificateDer<'_>) -> CertifiedPeer {
    let (_, parsed) =
        X509Certificate::from_der(certificate.as_ref()).map_err(|_| CertificateError::Unreadable)?;
    let subject = parsed.subject();
    let role = single(subject.iter_organizational_unit().map(|part| part.as_str().ok()))
        .ok_or(CertificateError::RoleMissing)?;
    let name = single(subject.iter_common_name().map(|part| part.as_str().ok()))
        .ok_or(CertificateError::NameMissing)?;
    let expires_at = Timestamp::from_second(parsed.validity().not_after.timestamp())
        .map_err(|_| CertificateError::Unreadable)?;
    Ok(CertifiedIdentity {
        identity: Identity::new(role.parse()?, name)?,
        expires_at,
    })
}

fn single<T>(mut parts: impl Iterator<Item = Option<T>>) -> Option<T> {
    let first = parts.next().flatten();
    if parts.next().is_some() { None } else { first }
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, DnType, KeyPair};

    use super::*;
    use crate::domain::access::Role;

    fn certificate(parts: &[(DnType, &str)]) -> CertifiedPeer {
        let mut params = CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.not_after = rcgen::date_time_ymd(2031, 2, 3);
        for (kind, value) in parts {
            params.distinguished_name.push(kind.clone(), *value);
        }
        let key = KeyPair::generate().unwrap();
        identify(params.self_signed(&key).unwrap().der())
    }

    #[test]
    fn the_subject_names_role_and_subject() {
        let peer = certificate(&[
            (DnType::OrganizationalUnitName, "tenant"),
            (DnType::CommonName, "alice"),
        ])
        .unwrap();
        assert_eq!(peer.identity, Identity::new(Role::Tenant, "alice").unwrap());
        assert_eq!(peer.expires_at, "2031-02-03T00:00:00Z".parse().unwrap());
    }

    #[test]
    fn a_certificate_without_a_clear_identity_is_refused() {
        use DnType::{CommonName, OrganizationalUnitName};
        assert_eq!(
            certificate(&[(CommonName, "alice")]),
            Err(CertificateError::RoleMissing)
        );
        assert_eq!(
            certificate(&[(OrganizationalUnitName, "operator")]),
            Err(CertificateError::NameMissing)
        );
        assert!(matches!(
            certificate(&[(OrganizationalUnitName, "king"), (CommonName, "x")]),
            Err(CertificateError::UnknownRole(_))
        ));
        assert!(matches!(
            certificate(&[(OrganizationalUnitName, "tenant"), (CommonName, "a b")]),
            Err(CertificateError::Identity(_))
        ));
        assert_eq!(
            identify(&CertificateDer::from(vec![1, 2, 3])),
            Err(CertificateError::Unreadable)
        );
    }
}
