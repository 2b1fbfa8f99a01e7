#!/usr/bin/env bash
# Looks whether this machine has what the tests need, and says what to install.
#
#   bash tests/services/needs.sh              what they need; fails if something is missing
#   bash tests/services/needs.sh --install    installs it first, if this is Debian (or Ubuntu) and we are root
#
# Needed are: Java 17 or later and Maven (the broker), a C and C++ compiler and make (feature `kafka`),
# pkg-config and the headers of OpenSSL (feature `kafka-ssl`), openssl (a broker with TLS); setpriv (a user
# without rights); and, for root, unless ISOCHRONE_WITHOUT_ROOT=1, ip (two hosts on one machine) and mount (full disks).
set -euo pipefail

missing=()
packages=()

# need WHAT PACKAGE COMMAND..: the package of Debian that brings it, and a command that succeeds when it is there.
need() {
    local what=$1 package=$2
    shift 2
    "$@" > /dev/null 2>&1 || { missing+=("$what"); packages+=("$package"); }
}

is_there() { command -v "$1"; }

java_17() {
    local version
    version=$(java -version 2>&1 | sed -n 's/.* version "\([0-9]*\).*/\1/p')
    ((${version:-0} >= 17))
}

openssl_headers() {
    pkg-config --atleast-version=1.1.0 libssl
}

look() {
    missing=() packages=()
    need "Java 17 or later" default-jdk-headless java_17
    need "Maven (mvn)" maven is_there mvn
    need "a C compiler (cc)" gcc is_there cc
    need "a C++ compiler (c++)" g++ is_there c++
    need "make" make is_there make
    need "pkg-config" pkg-config is_there pkg-config
    need "the headers of OpenSSL" libssl-dev openssl_headers
    need "openssl" openssl is_there openssl
    need "flock and setsid (util-linux)" util-linux is_there flock
    need "setpriv (util-linux)" util-linux is_there setpriv
    if ((EUID == 0)) && [[ ${ISOCHRONE_WITHOUT_ROOT:-} != 1 ]]; then
        need "ip (iproute2)" iproute2 is_there ip
        need "mount" mount is_there mount
    fi
}

look
if ((${#missing[@]} > 0)) && [[ ${1:-} == --install ]]; then
    if ((EUID == 0)) && command -v apt-get > /dev/null; then
        echo "installing: ${packages[*]}" >&2
        export DEBIAN_FRONTEND=noninteractive
        {
            apt-get update -q
            apt-get install -q -y --no-install-recommends "${packages[@]}"
        } >&2
        look
    else
        echo "cannot install by itself: that needs root and apt-get" >&2
    fi
fi
if ((${#missing[@]} > 0)); then
    printf 'missing: %s\n' "${missing[@]}" >&2
    printf 'on Debian and Ubuntu: apt-get install %s\n' "${packages[*]}" >&2
    exit 1
fi
