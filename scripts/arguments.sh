# Arguments of the scripts that read this from the root of the repository. A script refuses what it does not know before it builds anything;
# `--help` prints the comment at its head.

# explain ARGUMENT...: prints the head of the script and ends it if one of the arguments asks for help.
explain() {
    local argument
    for argument in "$@"; do
        case $argument in
        -h | --help)
            sed -n '2,/^[^#]/s/^#\( \|$\)//p' "scripts/${0##*/}"
            exit 0
            ;;
        esac
    done
}

# refuse REASON: ends the script.
refuse() {
    echo "$1; see scripts/${0##*/}${name:+ $name} --help" >&2
    exit 2
}

# at_most N ARGUMENT...: refuses options, and more than N arguments.
at_most() {
    local most=$1 argument
    shift
    explain "$@"
    for argument in "$@"; do
        case $argument in
        -*) refuse "there is no option $argument" ;;
        esac
    done
    [ $# -le "$most" ] || refuse "unexpected argument: ${*:most+1}"
}

# number NAME TEXT: refuses a text that is not a number.
number() {
    [[ $2 =~ ^[0-9]+$ ]] || refuse "$1 must be a number, not \"$2\""
}

# value OPTION [VALUE]...: refuses an option without a value.
value() {
    [ $# -ge 2 ] || refuse "$1 needs a value"
}
