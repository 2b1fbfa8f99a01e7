//! librdkafka's error codes as errors of ours: what was found, where, and what to do.

use isochrone_engine::{Error, ErrorKind};
use rdkafka::error::{KafkaError, RDKafkaErrorCode as Code};

use super::client::Context;

/// What a code means to whoever reads it.
struct Meaning {
    kind: ErrorKind,
    found: &'static str,
    advice: &'static str,
}

/// The error of something that was tried, such as `read topic `a``.
///
/// A client that waits in vain says no more than that it waited: what it met meanwhile is taken from
/// its context.
pub(super) fn explain(doing: &str, error: &KafkaError, context: &Context) -> Error {
    let code = code_of(error);
    let cause = context.cause().filter(|_| code.is_none_or(is_waiting_in_vain));
    let (code, reason) = match (cause, code) {
        (Some(cause), _) => (cause.code, Some(cause.reason)),
        (None, Some(code)) => (code, None),
        (None, None) => return unnamed(doing, error, context),
    };
    of_code(doing, code, reason.as_deref(), context)
}

/// The error of a code and what was said with it.
pub(super) fn of_code(doing: &str, code: Code, reason: Option<&str>, context: &Context) -> Error {
    let Meaning { kind, found, advice } = meaning(code);
    let reason = reason.map(|reason| context.redacted(reason));
    let reason = reason.unwrap_or_else(|| code.to_string());
    let at = context.addresses();
    Error::new(kind, format!("cannot {doing} at Kafka {at}: {found} ({reason}); {advice}"))
}

/// Errors that carry text instead of a code. None shows a value of a setting that is a secret.
fn unnamed(doing: &str, error: &KafkaError, context: &Context) -> Error {
    let at = context.addresses();
    let (kind, found) = match error {
        KafkaError::ClientConfig(_, description, key, _) => {
            let description = context.redacted(description);
            (ErrorKind::Invalid, format!("setting `{key}` is refused: {description}"))
        }
        KafkaError::ClientCreation(text) => {
            let text = context.redacted(text);
            (ErrorKind::Invalid, format!("the settings do not fit together: {text}"))
        }
        other => (ErrorKind::Unavailable, context.redacted(&other.to_string())),
    };
    Error::new(kind, format!("cannot {doing} at Kafka {at}: {found}"))
}

/// The code of an error; the safe crate hides those of administrative requests.
pub(super) fn code_of(error: &KafkaError) -> Option<Code> {
    match error {
        KafkaError::AdminOp(code) => Some(*code),
        other => other.rdkafka_error_code(),
    }
}

/// Nothing came back; the reason lies elsewhere.
fn is_waiting_in_vain(code: Code) -> bool {
    matches!(
        code,
        Code::BrokerTransportFailure
            | Code::AllBrokersDown
            | Code::OperationTimedOut
            | Code::MessageTimedOut
            | Code::RequestTimedOut
            | Code::TimedOutQueue
            | Code::WaitingForCoordinator
            | Code::Fail
    )
}

pub(super) fn is_worth_remembering(code: Code) -> bool {
    // A group is of no concern to what is read and written.
    !matches!(code, Code::NoError | Code::PartitionEOF | Code::GroupAuthorizationFailed)
}

/// How much a code says about why nothing works; waiting does not help against those above 2.
pub(super) fn weight(code: Code) -> u8 {
    match (is_waiting_in_vain(code), meaning(code).kind) {
        (false, ErrorKind::Invalid) => 3,
        (false, _) => 2,
        (true, _) if code == Code::BrokerTransportFailure => 1,
        (true, _) => 0,
    }
}

/// Whether somebody has to do something, so that there is no use in waiting.
pub(super) fn is_hopeless(code: Code) -> bool {
    weight(code) > 2 && !turns_away(code)
}

/// Whether a connection did not come about though somebody was there: for good, unless it is a broker
/// that is not ready yet. Which of both it is only time can tell ([`Context::is_hopeless`]).
pub(super) fn turns_away(code: Code) -> bool {
    matches!(
        code,
        Code::Authentication
            | Code::SaslAuthenticationFailed
            | Code::UnsupportedSASLMechanism
            | Code::IllegalSASLState
            | Code::SSL
    )
}

fn meaning(code: Code) -> Meaning {
    let (kind, found, advice) = refusal(code).unwrap_or_else(|| trouble(code));
    Meaning { kind, found, advice }
}

/// Somebody has to change something.
fn refusal(code: Code) -> Option<(ErrorKind, &'static str, &'static str)> {
    let (found, advice) = match code {
        Code::Authentication | Code::SaslAuthenticationFailed => (
            "the broker does not accept who we say we are",
            "check `sasl.username`, `sasl.password` and `sasl.mechanism`",
        ),
        Code::UnsupportedSASLMechanism | Code::IllegalSASLState => (
            "the broker does not know this way of saying who we are",
            "check `security.protocol` and `sasl.mechanism` against its listener",
        ),
        Code::SSL => (
            "no TLS connection comes about",
            "check `security.protocol`, the port and the certificates (`ssl.ca.location`)",
        ),
        Code::TopicAuthorizationFailed
        | Code::GroupAuthorizationFailed
        | Code::ClusterAuthorizationFailed
        | Code::TransactionalIdAuthorizationFailed
        | Code::DelegationTokenAuthorizationFailed => (
            "the user of this job has no right to do that",
            "grant it (kafka-acls), or use another user",
        ),
        Code::UnknownTopicOrPartition
        | Code::UnknownTopic
        | Code::UnknownPartition
        | Code::UnknownTopicId
        | Code::InvalidTopic => (
            "there is no such topic",
            "create it, or correct its name or the address of the cluster",
        ),
        Code::MessageSizeTooLarge | Code::InvalidMessageSize => (
            "a record is larger than the topic takes",
            "raise `max.message.bytes` of the topic, or write smaller records",
        ),
        Code::InvalidTransactionTimeout => (
            "the time-out of a transaction is longer than the broker allows",
            "lower it, or raise `transaction.max.timeout.ms` of the broker",
        ),
        Code::TopicAlreadyExists => ("it exists already", "use it, or another name"),
        Code::InvalidConfig
        | Code::InvalidRequest
        | Code::PolicyViolation
        | Code::InvalidReplicationFactor
        | Code::InvalidPartitions => ("that is refused", "change what is complained of"),
        Code::UnsupportedVersion | Code::UnsupportedFeature => (
            "whoever answers there does not do that",
            "check that the port is that of a listener for clients, not one of a controller, and \
             that the broker is new enough",
        ),
        _ => return None,
    };
    Some((ErrorKind::Invalid, found, advice))
}

/// It may pass.
fn trouble(code: Code) -> (ErrorKind, &'static str, &'static str) {
    use ErrorKind::{Corrupt, Fenced, Unavailable};
    match code {
        Code::ProducerFenced | Code::InvalidProducerEpoch | Code::Fenced => (
            Fenced,
            "another run of this job has taken over",
            "stop this one; if there is no other, look for a second job of the same name",
        ),
        Code::BadMessage | Code::InvalidMessage | Code::BadCompression | Code::NotImplemented => (
            Corrupt,
            "what the broker sent cannot be decoded",
            "look at its log, or at how producers compress",
        ),
        _ if is_waiting_in_vain(code) || code == Code::Resolve => (
            Unavailable,
            "no broker answers",
            "check that it runs, and that host and port are those of its listener",
        ),
        _ => (Unavailable, "the broker has trouble of its own", "look at its log, or try again"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn context() -> Context {
        Context::new("a:1", vec!["hunter2".to_owned()])
    }

    #[test]
    fn a_time_out_says_what_the_client_met_meanwhile() {
        let context = context();
        let waited = KafkaError::MetadataFetch(Code::BrokerTransportFailure);
        let error = explain("read topic `t`", &waited, &context);
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        context.remember(Code::BrokerTransportFailure, "a:1: connection refused");
        context.remember(Code::AllBrokersDown, "1/1 brokers are down");
        let error = explain("read topic `t`", &waited, &context);
        assert_eq!(
            error.to_string(),
            "cannot read topic `t` at Kafka a:1: no broker answers (a:1: connection refused); \
             check that it runs, and that host and port are those of its listener"
        );
        context.remember(Code::Authentication, "a:1: SASL: wrong password hunter2");
        context.remember(Code::BrokerTransportFailure, "a:1: disconnected");
        let error = explain("read topic `t`", &waited, &context);
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert_eq!(
            error.to_string(),
            "cannot read topic `t` at Kafka a:1: the broker does not accept who we say we are (a:1: \
             SASL: wrong password ***); check `sasl.username`, `sasl.password` and `sasl.mechanism`"
        );
        context.forget();
        assert_eq!(context.cause(), None);
    }

    #[test]
    fn a_clear_answer_is_not_replaced_by_an_older_trouble() {
        let context = context();
        context.remember(Code::BrokerTransportFailure, "a:1: connection refused");
        let answer = KafkaError::MetadataFetch(Code::UnknownTopicOrPartition);
        let error = explain("read topic `t`", &answer, &context);
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.to_string().contains("there is no such topic"), "{error}");
    }

    #[test]
    fn a_refused_setting_is_named_and_its_value_is_not_shown() {
        let context = context();
        let refused = rdkafka::ClientConfig::new()
            .set("sasl.mechanism", "hunter2")
            .create_native_config()
            .err();
        let unknown = rdkafka::ClientConfig::new()
            .set("sasl.pasword", "hunter2")
            .create_native_config()
            .err();
        for error in [refused, unknown].into_iter().flatten() {
            let error = explain("make a client", &error, &context);
            assert_eq!(error.kind(), ErrorKind::Invalid);
            let text = error.report();
            assert!(!text.contains("hunter2") && text.contains("setting `sasl."), "{text}");
        }
    }
}
