//! A certificate authority of our own, made at first start when no certificate is configured. The CA
//! is kept sealed; the server's certificate is made from it at every start and long before it ends.

use jiff::{Timestamp, ToSpan as _, tz::TimeZone};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose, SanType,
};
use thiserror::Error;

use crate::{
    api::provider::{Keeper, KeeperError},
    domain::secret::Secret,
};

/// Under this name the CA is kept.
pub const KEPT_AS: &str = "api/own-ca";
const CA_YEARS: i32 = 10;
const SERVER_DAYS: i32 = 365;
const RENEW_AFTER_DAYS: i32 = 240;

/// Our own CA.
pub struct OwnCa {
    certificate_pem: String,
    issuer: Issuer<'static, KeyPair>,
}

impl std::fmt::Debug for OwnCa {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("OwnCa").finish_non_exhaustive()
    }
}

/// A server certificate of our own CA.
#[derive(Debug)]
pub struct Issued {
    /// The certificate and the CA's.
    pub chain_pem: String,
    /// Its key.
    pub key_pem: Secret,
    /// When a new one is due.
    pub renew_at: Timestamp,
}

/// Why there is no CA of our own.
#[derive(Debug, Error)]
pub enum OwnCaError {
    /// It could not be kept or read.
    #[error("our own CA could not be kept or read: {0}")]
    Keeper(#[from] KeeperError),
    /// It could not be made.
    #[error("no certificate of our own could be made: {0}")]
    Make(#[from] rcgen::Error),
    /// What was kept makes no sense.
    #[error("our own CA, as it was kept, makes no sense: {reason}")]
    Damaged {
        /// What is wrong.
        reason: String,
    },
}

impl OwnCa {
    /// The CA that was kept, or a new one.
    ///
    /// # Errors
    /// When it cannot be kept, read or made.
    pub async fn load_or_make(keeper: &dyn Keeper, now: Timestamp) -> Result<Self, OwnCaError> {
        if let Some(kept) = keeper.load(KEPT_AS).await? {
            return Self::parse(kept.expose());
        }
        let made = make(now)?;
        let ca = Self::parse(made.expose())?;
        keeper.save(KEPT_AS, made).await?;
        Ok(ca)
    }

    /// Certificate first, then the key, in one PEM text.
    fn parse(pem: &str) -> Result<Self, OwnCaError> {
        const END: &str = "-----END CERTIFICATE-----";
        let damaged = |reason: &str| OwnCaError::Damaged {
            reason: reason.to_owned(),
        };
        let (certificate, key) = pem
            .split_once(END)
            .ok_or_else(|| damaged("there is no certificate in it"))?;
        let certificate_pem = format!("{}{END}\n", certificate.trim_start());
        let key = KeyPair::from_pem(key.trim()).map_err(|_| damaged("its key cannot be read"))?;
        let issuer = Issuer::from_ca_cert_pem(&certificate_pem, key)
            .map_err(|_| damaged("its certificate cannot be read"))?;
        Ok(Self {
            certificate_pem,
            issuer,
        })
    }

    /// Its certificate, for clients.
    #[must_use]
    pub fn certificate_pem(&self) -> &str {
        &self.certificate_pem
    }

    /// A server certificate for loopback and these names.
    ///
    /// # Errors
    /// When a name is none.
    pub fn issue(&self, names: &[String], now: Timestamp) -> Result<Issued, OwnCaError> {
        let mut all: Vec<String> = vec!["localhost".into(), "127.0.0.1".into(), "::1".into()];
        all.extend(names.iter().filter(|name| !name.is_empty()).cloned());
        let mut params = CertificateParams::new(all)?;
        params.subject_alt_names.dedup_by(|left, right| same(left, right));
        params.distinguished_name = name("freehold");
        params.is_ca = IsCa::ExplicitNoCa;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.use_authority_key_identifier_extension = true;
        set_validity(&mut params, now, SERVER_DAYS.days());
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &self.issuer)?;
        Ok(Issued {
            chain_pem: format!("{}{}", certificate.pem(), self.certificate_pem),
            key_pem: Secret::new(key.serialize_pem()),
            renew_at: later(now, RENEW_AFTER_DAYS.days()),
        })
    }
}

fn same(left: &SanType, right: &SanType) -> bool {
    left == right
}

fn make(now: Timestamp) -> Result<Secret, OwnCaError> {
    let mut params = CertificateParams::new(Vec::new())?;
    params.distinguished_name = name("freehold own CA");
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    set_validity(&mut params, now, CA_YEARS.years());
    let key = KeyPair::generate()?;
    let certificate = params.self_signed(&key)?;
    Ok(Secret::new(format!(
        "{}{}",
        certificate.pem(),
        key.serialize_pem()
    )))
}

fn name(common: &str) -> DistinguishedName {
    let mut name = DistinguishedName::new();
    name.push(DnType::OrganizationName, "freehold");
    name.push(DnType::CommonName, common);
    name
}

/// From yesterday, because clocks differ.
fn set_validity(params: &mut CertificateParams, now: Timestamp, span: jiff::Span) {
    let date = |time: Timestamp| {
        let date = time.to_zoned(TimeZone::UTC).date();
        let (month, day) = (date.month().unsigned_abs(), date.day().unsigned_abs());
        rcgen::date_time_ymd(i32::from(date.year()), month, day)
    };
    params.not_before = date(later(now, (-1).days()));
    params.not_after = date(later(now, span));
}

fn later(now: Timestamp, span: jiff::Span) -> Timestamp {
    now.to_zoned(TimeZone::UTC).saturating_add(span).timestamp()
}
