# Arguments of the scripts beside this, which read it from the root of the repository: what a script does not know is refused before
# anything is built, and `--help` prints the head of the script.

# explain ARGUMENT...: prints the head and ends, if one of the arguments asks for that.
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

# refuse WHY: ends the script.
refuse() {
    echo "$1; scripts/${0##*/} --help says what there is" >&2
    exit 2
}

# at_most N ARGUMENT...: no more words than these, and no options.
at_most() {
    local most=$1 argument
    shift
    explain "$@"
    for argument in "$@"; do
        case $argument in
        -*) refuse "there is no option $argument" ;;
        esac
    done
    [ $# -le "$most" ] || refuse "there is nothing more to say than $most words: ${*:most+1}"
}

# number WHAT TEXT: refuses what is no number.
number() {
    [[ $2 =~ ^[0-9]+$ ]] || refuse "$1 is a number, not \"$2\""
}

# value OPTION [VALUE]...: refuses an option that is the last word.
value() {
    [ $# -ge 2 ] || refuse "$1 needs a value"
}
