//! Who calls, and what they may do. The decision is pure: a rule and an identity give a grant or a
//! refusal; how the identity was proved is the business of `api`.

use std::{fmt, str::FromStr};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// What a caller is to the provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Brings orders and leases.
    Marketplace,
    /// Rents; sees its own only.
    Tenant,
    /// Runs the provider.
    Operator,
    /// Reports hosts of one inventory source.
    Synchronizer,
    /// Reports the hardware of one node.
    Node,
}

impl Role {
    /// Every role there is.
    pub const ALL: [Self; 5] = [
        Self::Marketplace,
        Self::Tenant,
        Self::Operator,
        Self::Synchronizer,
        Self::Node,
    ];

    /// The name used in tokens, certificates and messages.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Marketplace => "marketplace",
            Self::Tenant => "tenant",
            Self::Operator => "operator",
            Self::Synchronizer => "synchronizer",
            Self::Node => "node",
        }
    }

    /// Whether this role stands for one owner, source or node, and so needs a subject.
    #[must_use]
    pub fn needs_subject(self) -> bool {
        match self {
            Self::Tenant | Self::Synchronizer | Self::Node => true,
            Self::Marketplace | Self::Operator => false,
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

impl FromStr for Role {
    type Err = UnknownRole;

    fn from_str(text: &str) -> Result<Self, UnknownRole> {
        Self::ALL
            .into_iter()
            .find(|role| role.name() == text)
            .ok_or_else(|| UnknownRole {
                name: text.chars().take(64).collect(),
            })
    }
}

/// A role that does not exist.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("there is no role {name:?}: use marketplace, tenant, operator, synchronizer or node")]
pub struct UnknownRole {
    /// As given.
    pub name: String,
}

/// A caller whose credentials were proved.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Identity {
    role: Role,
    subject: String,
}

/// The longest subject accepted.
pub const MAX_SUBJECT: usize = 253;

/// Why a role and a subject make no identity.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum IdentityError {
    /// Roles that stand for one thing must say which.
    #[error("the role {role} needs a subject: the owner, the source or the node it stands for")]
    SubjectMissing {
        /// The role asked for.
        role: Role,
    },
    /// A subject of the wrong form.
    #[error("a subject has at most {MAX_SUBJECT} characters, none of them white space or control characters")]
    SubjectMalformed,
}

impl Identity {
    /// An identity; roles that stand for one thing need a subject.
    ///
    /// # Errors
    /// When the subject is missing or malformed.
    pub fn new(role: Role, subject: &str) -> Result<Self, IdentityError> {
        if subject.is_empty() && role.needs_subject() {
            return Err(IdentityError::SubjectMissing { role });
        }
        let malformed = |letter: char| letter.is_whitespace() || letter.is_control();
        if subject.len() > MAX_SUBJECT || subject.chars().any(malformed) {
            return Err(IdentityError::SubjectMalformed);
        }
        Ok(Self {
            role,
            subject: subject.to_owned(),
        })
    }

    /// Whoever sits at the machine, where no identities are configured.
    #[must_use]
    pub fn local_operator() -> Self {
        Self {
            role: Role::Operator,
            subject: "local".to_owned(),
        }
    }

    /// Its role.
    #[must_use]
    pub fn role(&self) -> Role {
        self.role
    }

    /// The owner, source or node it stands for; a name for the other roles, maybe empty.
    #[must_use]
    pub fn subject(&self) -> &str {
        &self.subject
    }

    /// Whether it may see or change what belongs to `belonging`. A handler that gets `false` answers as
    /// if the thing did not exist.
    #[must_use]
    pub fn reaches(&self, belonging: Belonging<'_>) -> bool {
        match (self.role, belonging) {
            (Role::Operator, _) => true,
            (Role::Marketplace, Belonging::Tenant(_)) => true,
            (Role::Tenant, Belonging::Tenant(owner)) => owner == self.subject,
            (Role::Synchronizer, Belonging::Source(source)) => source == self.subject,
            (Role::Node, Belonging::Node(node)) => node == self.subject,
            (Role::Marketplace, Belonging::Source(_) | Belonging::Node(_))
            | (Role::Tenant, Belonging::Source(_) | Belonging::Node(_))
            | (Role::Synchronizer, Belonging::Tenant(_) | Belonging::Node(_))
            | (Role::Node, Belonging::Tenant(_) | Belonging::Source(_)) => false,
        }
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.subject.is_empty() {
            formatter.write_str(self.role.name())
        } else {
            write!(formatter, "{}/{}", self.role, self.subject)
        }
    }
}

/// Whose a thing is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Belonging<'a> {
    /// A tenant's, by owner.
    Tenant(&'a str),
    /// An inventory source's.
    Source(&'a str),
    /// A node's own report.
    Node(&'a str),
}

/// Who may call a method or a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// Everybody, without credentials.
    Anyone,
    /// These roles.
    Only(&'static [Role]),
}

/// Why a call is refused.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum Refusal {
    /// Nobody knows who calls.
    #[error("this call needs credentials")]
    Unauthenticated,
    /// The caller's role may not.
    #[error("the role {role} may not do this")]
    Forbidden {
        /// The caller's.
        role: Role,
    },
}

impl Rule {
    /// Whether `caller` may.
    ///
    /// # Errors
    /// When it may not, and why.
    pub fn admit(self, caller: Option<&Identity>) -> Result<(), Refusal> {
        let Self::Only(roles) = self else {
            return Ok(());
        };
        let caller = caller.ok_or(Refusal::Unauthenticated)?;
        if roles.contains(&caller.role) {
            Ok(())
        } else {
            Err(Refusal::Forbidden { role: caller.role })
        }
    }
}

/// A bearer token as it can be shown: without its secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenReport {
    /// By which it is revoked.
    pub id: String,
    /// What people call it.
    pub name: String,
    /// What it lets its bearer be.
    pub role: Role,
    /// For whom.
    pub subject: String,
    /// When it was made.
    pub created_at: Timestamp,
    /// When it ends; absent means never.
    pub expires_at: Option<Timestamp>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(role: Role, subject: &str) -> Identity {
        Identity::new(role, subject).unwrap()
    }

    #[test]
    fn a_role_reads_back_from_its_name() {
        for role in Role::ALL {
            assert_eq!(role.name().parse(), Ok(role));
        }
        assert!("Operator".parse::<Role>().is_err());
        assert!("".parse::<Role>().is_err());
    }

    #[test]
    fn a_tenant_without_an_owner_is_no_identity() {
        for role in Role::ALL {
            assert_eq!(Identity::new(role, "").is_err(), role.needs_subject());
        }
    }

    #[test]
    fn a_subject_cannot_break_a_line_or_be_endless() {
        for subject in ["a\nb", "a b", "a\0", "\u{202e} x", &"x".repeat(254)] {
            assert_eq!(
                Identity::new(Role::Tenant, subject),
                Err(IdentityError::SubjectMalformed)
            );
        }
    }

    #[test]
    fn each_role_reaches_its_own_only() {
        let things = [
            Belonging::Tenant("alice"),
            Belonging::Tenant("bob"),
            Belonging::Source("bcm"),
            Belonging::Source("ironic"),
            Belonging::Node("n1"),
            Belonging::Node("n2"),
        ];
        let reached = |caller: Identity| things.map(|thing| caller.reaches(thing));
        assert_eq!(
            reached(identity(Role::Tenant, "alice")),
            [true, false, false, false, false, false]
        );
        assert_eq!(
            reached(identity(Role::Synchronizer, "bcm")),
            [false, false, true, false, false, false]
        );
        assert_eq!(
            reached(identity(Role::Node, "n1")),
            [false, false, false, false, true, false]
        );
        assert_eq!(
            reached(identity(Role::Marketplace, "m")),
            [true, true, false, false, false, false]
        );
        assert_eq!(reached(identity(Role::Operator, "")), [true; 6]);
    }

    #[test]
    fn a_rule_admits_its_roles_and_nobody_without_credentials() {
        let rule = Rule::Only(&[Role::Operator, Role::Marketplace]);
        assert_eq!(rule.admit(None), Err(Refusal::Unauthenticated));
        assert_eq!(rule.admit(Some(&identity(Role::Marketplace, ""))), Ok(()));
        assert_eq!(
            rule.admit(Some(&identity(Role::Tenant, "alice"))),
            Err(Refusal::Forbidden { role: Role::Tenant })
        );
        assert_eq!(Rule::Anyone.admit(None), Ok(()));
    }
}
