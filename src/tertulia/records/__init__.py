"""Operations on the records of a store. Each public call is one transaction."""
