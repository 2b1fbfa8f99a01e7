//! One job in two versions: what an account keeps changes its type, and the second version goes on
//! from the first one's checkpoint.
//!
//! ```sh
//! cargo run --release --example upgrade -- --version 1 --input payments --output out --store state
//! # ... more files come to `payments`, and a new version of the program is released ...
//! cargo run --release --example upgrade -- --version 2 --input payments --output out --store state
//! ```

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use isochrone::connectors::files::PartSink;
use isochrone::prelude::*;

#[derive(Clone, Serialize, Deserialize)]
struct Payment {
    account: String,
    cents: i64,
}

/// The program as it was.
mod before {
    use super::*;

    #[derive(Clone, Default, PartialEq, Serialize, Deserialize)]
    pub(super) struct Balance {
        pub(super) payments: u64,
        pub(super) cents: i64,
    }

    impl State for Balance {
        const VERSION: u16 = 1;
    }

    impl Balance {
        pub(super) fn add(&mut self, cents: i64) {
            self.payments += 1;
            self.cents += cents;
        }
    }
}

/// The program as it is: what was paid back is kept apart.
mod after {
    use isochrone::state::{codec, no_upgrade};

    use super::*;

    #[derive(Clone, Default, PartialEq, Serialize, Deserialize)]
    pub(super) struct Balance {
        payments: u64,
        paid: i64,
        paid_back: i64,
    }

    impl State for Balance {
        const VERSION: u16 = 2;

        fn upgrade(from: u16, bytes: &[u8]) -> Result<Balance> {
            match from {
                1 => codec::decode::<before::Balance>(bytes).map(Balance::from),
                other => Err(no_upgrade::<Balance>(other)),
            }
        }
    }

    impl From<before::Balance> for Balance {
        fn from(before::Balance { payments, cents }: before::Balance) -> Balance {
            Balance { payments, paid: cents, paid_back: 0 }
        }
    }

    impl Balance {
        pub(super) fn add(&mut self, cents: i64) {
            self.payments += 1;
            if cents < 0 {
                self.paid_back -= cents;
            } else {
                self.paid += cents;
            }
        }
    }
}

/// Keeps the balance of accounts.
#[derive(Parser)]
struct Args {
    /// Version of the program: 1 before the change, 2 after it
    #[arg(long, value_name = "1|2", value_parser = clap::value_parser!(u8).range(1..=2))]
    version: u8,
    /// Payments to read: a file, a directory or a glob, of .csv with a header or .jsonl
    #[arg(long, value_name = "PATH")]
    input: PathBuf,
    /// Directory for the balances, as part-*.jsonl
    #[arg(long, value_name = "DIR")]
    output: PathBuf,
    #[command(flatten)]
    run: RunArgs,
}

fn main() -> ExitCode {
    isochrone::main(|| {
        let args = Args::parse();
        Files::at(&args.input).check_apart_from(&args.output)?;
        let job = Job::new("balances").checkpoint(Checkpoint::dir("state"));
        job.run(args.run.clone(), move |flow| {
            let payments = flow.source("payments", Files::at(&args.input).by_extension());
            match args.version {
                1 => balances(&payments, before::Balance::add).sink("balances", output(&args)),
                _ => balances(&payments, after::Balance::add).sink("balances", output(&args)),
            }
            Ok(())
        })
    })
}

/// The job: the same in both versions, but for the type of the state.
fn balances<'s, B: State + Clone + Send>(
    payments: &Stream<'s, Payment>,
    add: fn(&mut B, i64),
) -> Stream<'s, (String, B)> {
    payments.key_by(|payment| payment.account.clone()).state::<B>("balance").map(
        move |balance, payment| {
            add(balance, payment.cents);
            (payment.account, balance.clone())
        },
    )
}

fn output<B: Serialize + 'static>(args: &Args) -> PartSink<(String, B)> {
    PartFiles::at(&args.output).json()
}
